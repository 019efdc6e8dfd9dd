"""Diffs from outside: what git writes is read the same way, everything else is refused with its line."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.backends.base import FileChange, Patch
from sandbox.formats.diffs import MAX_DIFF_BYTES, PatchRefused, parse_diff
from sandbox.grading.patches.patch import render
from sandbox.repositories.history import TreeFile

OLD = b"one\ntwo\nthree\n"
FILES = {"a.txt": TreeFile(OLD), "run.sh": TreeFile(b"#!/bin/sh\n", executable=True), "dir/b.txt": TreeFile(b"x")}


def parse(text: str | bytes, files=FILES) -> Patch:
    return parse_diff(text if isinstance(text, bytes) else text.encode(), files.get)


CHANGE = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


def test_a_change_and_a_message_around_it():
    expected = Patch(changes=(FileChange("a.txt", b"one\n2\nthree\n", before=OLD),))
    assert parse(CHANGE) == expected
    assert (
        parse(f"From: x\n\ndiff --git a/a.txt b/a.txt\nindex 1234567..89abcde 100644\n{CHANGE}-- \n2.39\n") == expected
    )


def test_each_kind_of_change():
    text = (
        "diff --git a/new.py b/new.py\nnew file mode 100755\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x\n"
        "\\ No newline at end of file\n"
        "diff --git a/a.txt b/a.txt\ndeleted file mode 100644\n--- a/a.txt\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n"
        "diff --git a/run.sh b/run.sh\nold mode 100755\nnew mode 100644\n"
        "diff --git a/dir/b.txt b/c.txt\nsimilarity index 100%\nrename from dir/b.txt\nrename to c.txt\n"
        "diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n"
    )
    assert parse(text).changes == (
        FileChange("a.txt", None, before=OLD),
        FileChange("c.txt", b"x"),
        FileChange("dir/b.txt", None, before=b"x"),
        FileChange("empty", b""),
        FileChange("new.py", b"x", executable=True),
        FileChange("run.sh", b"#!/bin/sh\n", executable=False, before=b"#!/bin/sh\n"),
    )


def created(name: str, mode: str = "100644") -> str:
    return f"diff --git a/{name} b/{name}\nnew file mode {mode}\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        (created("link", "120000"), 2, "symbolic link"),
        (created("sub", "160000"), 2, "submodule"),
        (created("odd", "104755"), 2, "odd file mode"),
        (created("../up"), 3, "plain relative path"),
        ("--- a//etc/passwd\n+++ b//etc/passwd\n", 1, "plain relative path"),
        ("--- /etc/passwd\n+++ /etc/passwd\n", 1, "does not begin with"),
        (created(".git/config"), 3, "plain relative path"),
        (created("x/.GIT/config"), 3, "plain relative path"),
        (created(".gitattributes"), 3, "configures git"),
        (created("pkg/.gitmodules"), 3, "configures git"),
        (created("a\x1bb"), 3, "plain relative path"),
        ('diff --git "a/\\303\\244" "b/\\303\\244"\n', 1, "names no plain paths"),
        ('--- "a/x y"\n', 1, "does not begin with"),
        ("diff --git a/i.png b/i.png\nnew file mode 100644\nGIT binary patch\nliteral 3\n", 3, "a binary change"),
        ("diff --git a/i b/i\nBinary files a/i and b/i differ\n", 2, "a binary change"),
        (CHANGE.replace("-two", "-deux"), 3, "are not those of 'a.txt'"),
        (CHANGE.replace("@@ -1,3", "@@ -9,3"), 3, "are not those of 'a.txt'"),
        (CHANGE.replace("a.txt", "none.txt"), 1, "does not exist"),
        (CHANGE + CHANGE, 8, "changed twice"),
        (CHANGE[: CHANGE.index("+2")], 6, "ends inside a hunk"),
        (CHANGE.replace("+2", "?2"), 6, "does not fit"),
        (CHANGE.replace("@@ -1,3 +1,3 @@", "@@ nonsense"), 3, "not a hunk header"),
        (CHANGE.replace("b/a.txt", "b/other.txt"), 3, "without `rename from`"),
        (created("a.txt"), 1, "to be created and exists"),
        (created("a.txt/inner"), 1, "lies inside"),
        (created("n") + created("n/inner"), 1, "lies inside"),
        ("@@ -1 +1 @@\n-a\n+b\n", 1, "outside a file"),
        ("--- /dev/null\n+++ /dev/null\n", 3, "both sides"),
        (CHANGE.replace("+2", "+2\0"), 1, "not text"),
    ],
)
def test_what_is_refused(text, line, found):
    with pytest.raises(PatchRefused, match="patch line") as refused:
        parse(text)
    assert found in str(refused.value) and refused.value.line == line, refused.value


def test_size_is_bounded():
    with pytest.raises(PatchRefused, match="at most"):
        parse(b"x" * (MAX_DIFF_BYTES + 1))


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "\x0c", "é", "--- a/x", "@@", "\\ x", "+", "- "]), max_size=10)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(LINES, LINES, st.booleans(), st.booleans()), min_size=1, max_size=3))
def test_what_git_writes_is_read_as_git_reads_it(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("repo")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    old, new = {}, {}
    for number, (before, after, had_end, has_end) in enumerate(contents):
        old[f"f{number}"] = ("\n".join(before) + ("\n" if had_end else "")).encode()
        new[f"f{number}"] = ("\n".join(after) + ("\n" if has_end else "")).encode()
    for path, content in old.items():
        (folder / path).write_bytes(content)
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    for path, content in new.items():
        (folder / path).write_bytes(content)
    command = ["git", "-c", "core.safecrlf=false", "diff", "--no-color", "--no-ext-diff", "--text"]
    text = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
    found = parse_diff(text, {path: TreeFile(content) for path, content in old.items()}.get)
    assert {change.path: change.content for change in found.changes} == {
        path: content for path, content in new.items() if content != old[path]
    }


NAMES = st.sampled_from(["a.py", "d/b.py", "c c.txt", "ä.txt", "d/e/f.py"])
CONTENT = st.one_of(st.none(), LINES.map(lambda lines: "\n".join(lines).encode()))


@settings(deadline=None)
@given(st.dictionaries(NAMES, st.tuples(CONTENT, CONTENT), max_size=5))
def test_what_is_rendered_is_read_back(files):
    files = {path: pair for path, pair in files.items() if pair[0] != pair[1] and pair != (None, None)}
    changes = tuple(FileChange(path, after, before=before) for path, (before, after) in sorted(files.items()))
    pristine = {path: TreeFile(before) for path, (before, _) in files.items() if before is not None}
    assert parse_diff(render(Patch(changes=changes)).encode(), pristine.get).changes == changes


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 40), st.binary(max_size=12)), max_size=4),
    st.sampled_from([CHANGE, created("n.py"), created("d/x") + CHANGE]),
)
def test_a_damaged_diff_is_refused_or_harmless(tail, damage, text):
    data = bytearray(text.encode())
    for at, length, new in damage:
        data[at : at + length] = new
    try:
        changes = parse_diff(bytes(data) + tail, FILES.get).changes
    except PatchRefused:
        changes = ()
    for change in changes:
        assert not change.path.startswith("/") and not {"..", ".git", ""} & set(change.path.split("/"))
        assert change.content is None or b"\0" not in change.content
