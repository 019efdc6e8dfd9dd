import pytest

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.filter import reason_to_drop, split
from sandbox.tasks.spec import InlineEnvironment, PytestVerifier, TaskSpec

TASK = TaskSpec(
    id="t",
    source="mutation",
    instruction="Fix it.",
    environment=InlineEnvironment(files={"shop.py": "x = 1\n", "docs/a.md": "a"}),
    verifier=PytestVerifier(
        test_files={"tests/test_shop.py": "def test(): pass\n"}, fail_to_pass=("tests/test_shop.py::test",)
    ),
    gold={"shop.py": "x = 2\n", "setup.cfg": "[x]\n"},
    protected=("docs/", "NOTICE"),
)


def change(path, *, new=True):
    return FileChange(path, b"x", before=None if new else b"y")


@pytest.mark.parametrize(
    "path",
    [
        "shop.py",
        "other.py",
        "pkg/random.py",
        "src/shop/json.py",
        "setup.cfg",
        "README.md",
        "tests/helper.txt",
        "git.py",
    ],
)
def test_work_on_the_product_is_kept(path):
    assert reason_to_drop(TASK, change(path)) is None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("docs/a.md", "protected"),
        ("NOTICE", "protected"),
        ("tests/test_shop.py", "hidden tests"),
        ("tests", "hidden tests"),
        ("tests/test_shop.py/x", "hidden tests"),
        (".git/config", "plain path"),
        ("a/.git/config", "plain path"),
        ("../x.py", "plain path"),
        ("/etc/passwd", "plain path"),
        ("a//b", "plain path"),
        ("__pycache__/shop.cpython-311.pyc", "caches"),
        ("pkg/__pycache__/x.txt", "caches"),
        ("x.pyc", "compiled"),
        ("evil.pth", "compiled"),
        ("fast.so", "compiled"),
        ("sitecustomize.py", "start-up"),
        ("pkg/conftest.py", "configuration"),
        ("pytest.ini", "configuration"),
        ("tox.ini", "configuration"),
        ("pyproject.toml", "configuration"),
        ("random.py", "hide a module"),
        ("json/__init__.py", "hide a module"),
        ("pytest.py", "hide a module"),
        ("_pytest/runner.py", "hide a module"),
        ("src/random.py", "hide a module"),
    ],
)
def test_what_could_change_the_judge_is_dropped(path, reason):
    assert reason in (reason_to_drop(TASK, change(path)) or "")


def test_a_module_that_was_always_there_may_change():
    assert reason_to_drop(TASK, change("random.py", new=False)) is None


def test_split_names_everything_left_out():
    patch = Patch(changes=(change("shop.py"), change("conftest.py")), skipped=(("link", "symbolic link"),))
    kept, dropped = split(TASK, patch)
    assert [c.path for c in kept] == ["shop.py"]
    assert dropped == ("link: symbolic link", "conftest.py: test configuration")
