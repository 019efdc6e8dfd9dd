import random
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.audit.attempt.diff import read
from sandbox.grading.patches.patch import MAX_DIFF_BYTES, from_files, render
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec

TASK = TaskSpec(
    id="t",
    source="procedural",
    instruction="Fix it.",
    environment=InlineEnvironment(files={"a.py": "x = 1\n", "b.py": "y = 1\n"}),
    verifier=CallsVerifier(module="a.py", function="f", cases=(("()", "1"),)),
    gold={"a.py": "x = 2\n"},
)


def test_only_changed_files_make_a_patch():
    patch = from_files(TASK, {"b.py": "y = 1\n", "a.py": "x = 2\n", "new.py": "z\n"})
    assert patch.changes == (FileChange("a.py", b"x = 2\n", before=b"x = 1\n"), FileChange("new.py", b"z\n"))


def test_render_shows_every_kind_of_change():
    text = render(
        Patch(
            changes=(
                FileChange("a.py", b"x = 2\n", before=b"x = 1\n"),
                FileChange("gone.py", None, before=b"z = 3\n"),
                FileChange("new.sh", b"echo hi", executable=True),
                FileChange("image.png", b"\xff\x00", before=b"\xfe"),
                FileChange("big.txt", b"y" * MAX_DIFF_BYTES, before=b"x\n"),
            )
        )
    )
    assert "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n" in text
    assert "deleted file mode 100644\n--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-z = 3\n" in text
    assert (
        "new file mode 100755\n--- /dev/null\n+++ b/new.sh\n@@ -0,0 +1 @@\n+echo hi\n\\ No newline at end of file\n"
        in text
    )
    assert "Binary files a/image.png and b/image.png differ\n" in text
    assert "Large files a/big.txt and b/big.txt differ\n" in text


LINES = st.lists(st.sampled_from(["a", "b", "", "\x0c", "é", "\u2028x"]), max_size=8)


@settings(max_examples=25, deadline=None)
@given(LINES, LINES, st.booleans())
def test_git_applies_what_was_rendered(tmp_path_factory, before, after, newline):
    folder = tmp_path_factory.mktemp("patch")
    old = "\n".join(before) + "\n"
    new = "\n".join(after) + ("\n" if newline else "end")
    if old == new:
        return
    (folder / "f.txt").write_bytes(old.encode())
    text = render(Patch(changes=(FileChange("f.txt", new.encode(), before=old.encode()),)))
    command = ["git", "apply", "--whitespace=nowarn", "-p1", "-"]
    done = subprocess.run(command, input=text.encode(), cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "f.txt").read_bytes() == new.encode()


def test_lines_that_are_slow_to_compare_are_shown_as_replaced() -> None:
    draw = random.Random(1)
    before, after = ("".join(f"{draw.randrange(150)}\n" for _ in range(30_000)).encode() for _ in range(2))
    text = render(
        Patch(changes=(FileChange("a.txt", after, before=before), FileChange("b.txt", b"x\n", before=b"y\n")))
    )
    assert "@@ -1,30000 +1,30000 @@" in text and text.endswith("@@ -1 +1 @@\n-y\n+x\n")
    [large, small] = read(text)
    assert [line.text for line in large.added] == after.decode().splitlines() and len(large.removed) == 30_000
    assert len(small.added) == 1
