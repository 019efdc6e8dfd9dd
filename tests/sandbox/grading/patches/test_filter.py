import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.patches.filter import MAX_CHANGES, filter_patch, reason_to_drop
from sandbox.grading.verdict.findings import Rule
from sandbox.tasks.spec import FrameworkVerifier, InlineEnvironment, PytestVerifier, TaskSpec

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
        "contest.py",
        "latest/shop.py",
        "git.py",
        "src/types/user.ts",
        "src/queue/worker.go",
        "packaging/x.spec",
        "packaging/build.py",
        "json/parser.py",
        "src/json/x.cpp",
        "site/index.html",
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
        ("tests/helper.txt", "hidden tests"),
        ("tests/test_shop/__init__.py", "in place of a hidden module"),
        ("pkg/tests/__init__.py", "hidden tests"),
        ("pkg/test_more.py", "hidden tests"),
        ("pkg/shop_test.go", "hidden tests"),
        ("web/shop.spec.ts", "hidden tests"),
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
        ("_pytest/__init__.py", "hide a module"),
        ("src/json/__init__.py", "hide a module"),
        (".gitattributes", "configuration of git"),
        ("pkg/.gitmodules", "configuration of git"),
        ("Makefile", "build configuration"),
        ("setup.py", "build configuration"),
        ("node_modules/left-pad/index.js", "dependencies"),
        (".venv/lib/x.py", "dependencies"),
        ("a\nb.py", "plain path"),
        ("a\u202eyp.py", "plain path"),
        ("a" * 300, "plain path"),
        ("..", "plain path"),
        ("src/random.py", "hide a module"),
    ],
)
def test_what_could_change_the_judge_is_dropped(path, reason):
    drop = reason_to_drop(TASK, change(path))
    assert drop is not None and reason in drop.reason


def test_a_module_that_was_always_there_may_change():
    assert reason_to_drop(TASK, change("random.py", new=False)) is None


def test_everything_left_out_is_named_and_found():
    patch = Patch(changes=(change("shop.py"), change("conftest.py")), skipped=(("link", "symbolic link"),))
    filtered = filter_patch(TASK, patch)
    assert [c.path for c in filtered.changes] == ["shop.py"]
    assert filtered.dropped == ("link: symbolic link", "conftest.py: test configuration")
    assert [f.rule for f in filtered.findings] == [Rule.ODD_PATH, Rule.TEST_CONFIGURATION]


def test_caches_of_honest_work_are_no_finding():
    patch = Patch(changes=(change("shop.py"), change(".hypothesis/x")), skipped=(("a/__pycache__", "compiled files"),))
    filtered = filter_patch(TASK, patch)
    assert len(filtered.dropped) == 2 and filtered.findings == ()


def test_doing_nothing_is_a_finding():
    assert [f.rule for f in filter_patch(TASK, Patch()).findings] == [Rule.NO_EDIT]


def test_a_patch_has_bounds():
    many = Patch(changes=tuple(change(f"f{n}.py") for n in range(MAX_CHANGES + 3)))
    assert len(filter_patch(TASK, many).changes) == MAX_CHANGES
    big = FileChange("big.bin", b"x" * (20 << 20))
    assert len(filter_patch(TASK, Patch(changes=(big, FileChange("more.bin", big.content)))).changes) == 1


@given(st.text(max_size=60))
def test_no_path_gets_past_its_folder(path):
    """Whatever is filtered has a plain relative path below the checkout."""
    for kept in filter_patch(TASK, Patch(changes=(FileChange(path, b""),))).changes:
        assert not kept.path.startswith("/") and kept.path.isprintable()
        assert not {"..", ".git", ""} & set(kept.path.split("/"))


def test_helpers_of_tests_stay_pristine_and_only_a_change_of_one_is_noticed():
    old, new = reason_to_drop(TASK, change("tests/helpers.py", new=False)), reason_to_drop(TASK, change("tests/new.py"))
    assert old is not None and old.rule is Rule.TEST_EDIT
    assert new is not None and new.rule is None


def test_where_the_work_lies_among_tests_it_is_the_product():
    writes_tests = TASK.model_copy(update={"category": "tests"})
    ships_tools = TASK.model_copy(update={"gold": {"shop/test/client.py": "x = 2\n"}})
    for task in (writes_tests, ships_tools):
        assert reason_to_drop(task, change("shop/test/tools.py", new=False)) is None


def test_what_the_command_of_the_hidden_tests_runs_stays_pristine():
    command = ("sh", "-c", "./ci/run.sh && python3 -m ci.report --out=build/out.xml")
    verifier = FrameworkVerifier(
        test_files={"spec.txt": "x"},
        fail_to_pass=("a::b",),
        framework="junit",
        arguments=command,
        report="build/out.xml",
    )
    task = TASK.model_copy(update={"verifier": verifier})
    for path in ("ci/run.sh", "ci/report.py", "ci/report/__main__.py", "build/out.xml"):
        for new in (True, False):
            drop = reason_to_drop(task, change(path, new=new))
            assert drop is not None and drop.rule is Rule.TEST_CONFIGURATION, path
    assert reason_to_drop(task, change("ci/other.sh")) is None
    assert reason_to_drop(TASK, change("ci/run.sh")) is None


@pytest.mark.parametrize("framework", ["go", "cargo", "node", "jest", "vitest"])
def test_only_tasks_that_start_python_lose_modules_of_its_names(framework):
    verifier = FrameworkVerifier(test_files={"a.x": "x"}, fail_to_pass=("a::b",), framework=framework)
    task = TASK.model_copy(update={"verifier": verifier})
    assert reason_to_drop(task, change("scripts.py")) is None
    assert reason_to_drop(task, change("random.py")) is None
    assert reason_to_drop(TASK, change("random.py")) is not None
