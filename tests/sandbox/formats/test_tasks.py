"""Tasks in other formats: there and back under the same hash, traps of the field, and bad input by name."""

import json

import pytest

from sandbox.backends.base import Patch
from sandbox.formats import harbor, swebench
from sandbox.formats.base import FormatRefused
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.report import Verdict
from sandbox.repositories.history import TreeFile
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import InlineEnvironment
from tests.sandbox.formats.examples import BROKEN, CALLS, GOLD, TASK, TESTS


@pytest.fixture
def store(tmp_path):
    return EnvironmentStore(tmp_path / "store")


def reader(files):
    return lambda path: TreeFile(files[path].encode()) if path in files else None


START = reader({"add.py": BROKEN, "README.md": "# add\n"})


@pytest.mark.parametrize("task", [TASK, CALLS], ids=["pytest", "calls"])
def test_harbor_there_and_back_is_the_same_bundle(task, store, tmp_path):
    made, losses = harbor.export(task, store)
    assert "isolation" in losses.found
    made.write(tmp_path / "out")
    found = harbor.read(tmp_path / "out")
    assert (found.config, found.files, found.instruction) == (made.config, made.files, made.instruction)
    again, _ = harbor.to_task(found, store)
    assert again.bundle_hash == task.bundle_hash
    visible = {path for path in found.files if path.startswith("environment/")}
    assert all(b"a + b" not in found.files[path] for path in visible), "the oracle is not in the image"


def test_harbor_of_others(store, tmp_path):
    files = {
        "task.toml": b'schema_version = "1.3"\n[environment]\nmemory = "2G"\n', "instruction.md": b"Add.\n",
        "environment/Dockerfile": b"FROM x\n", "environment/add.py": BROKEN.encode(),
        "solution/solve.sh": b"true\n", "solution/files/add.py": GOLD.encode(),
        "tests/test_outputs.py": b"from add import add\n\n\nclass TestAdd:\n    def test_add(self):\n        assert add(1, 1)\n",
        "tests/test.sh": b"pytest\n",
    }  # fmt: skip
    task, losses = harbor.to_task(harbor.from_files("Their_task", files), store)
    assert task.id == "harbor-their-task" and task.gold == {"add.py": GOLD}
    assert task.verifier.fail_to_pass == ("tests/test_outputs.py::TestAdd::test_add",)
    assert set(losses.found) == {"environment/Dockerfile", "tests/test.sh", "[environment]"}
    del files["solution/files/add.py"]
    with pytest.raises(FormatRefused, match=r"solve\.sh is a program"):
        harbor.to_task(harbor.from_files("t", files), store)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task.toml": b'schema_version = "1.5"'}, r"schema_version 1\.5 is newer than 1\.4"),
        ({"task.toml": b"= 1"}, "task.toml: "),
        ({"task.toml": None}, "has no task.toml"),
        ({"instruction.md": b"\xff"}, "not UTF-8 at byte 0"),
        ({"steps/a/instruction.md": b"x"}, "has several steps"),
        ({"../x": b"x"}, "not a plain relative path"),
    ],
)
def test_bad_harbor_is_refused_by_name(change, said):
    files = {"task.toml": b'schema_version = "1.4"', "instruction.md": b"x", **change}
    with pytest.raises(FormatRefused, match=said):
        harbor.from_files("bad", {path: content for path, content in files.items() if content is not None})


def test_a_changed_bundle_and_a_link_are_refused(store, tmp_path):
    made, _ = harbor.export(TASK, store)
    made.files[harbor.BUNDLE] = made.files[harbor.BUNDLE].replace(b"local/add", b"local/odd")
    with pytest.raises(FormatRefused, match="was changed"):
        harbor.to_task(made, store)
    made.write(tmp_path / "out")
    (tmp_path / "out/tests/link").symlink_to("/etc/passwd")
    with pytest.raises(FormatRefused, match="tests/link is a link"):
        harbor.read(tmp_path / "out")


def test_swe_bench_there_and_back():
    row, losses = swebench.export(TASK, START)
    assert set(losses.found) == {"environment", "protected", "family", "category"}
    published = row.dump()
    assert json.loads(published["FAIL_TO_PASS"]) == ["tests/test_add.py::test_add[a b]"]
    (again,) = swebench.load("".join(swebench.lines([row])))
    assert again == row and again.dump() == published
    task, _ = swebench.to_task(again, InlineEnvironment(files={"add.py": BROKEN, "README.md": "# add\n"}), START)
    for name in ("gold", "instruction", "environment", "verifier"):
        assert getattr(task, name) == getattr(TASK, name), name


async def test_an_imported_row_is_graded(store, backend):
    (row,) = swebench.load("".join(swebench.lines([swebench.export(TASK, START)[0]])))
    task, _ = swebench.to_task(row, InlineEnvironment(files={"add.py": BROKEN}), START)
    spec = task.model_copy(update={"verifier": CALLS.verifier})  # the base system has no pytest
    for patch, verdict in ((from_files(spec, spec.gold), Verdict.PASSED), (Patch(), Verdict.FAILED)):
        assert (await grade(backend=backend, environments=store, task=spec, patch=patch)).verdict is verdict


def test_the_patch_of_swe_smith_is_the_bug():
    whole = reader({"add.py": GOLD, "tests/test_add.py": TESTS})
    bug = swebench.export(TASK.model_copy(update={"gold": {"add.py": BROKEN}}), whole)[0].patch
    row = {
        "repo": "mirror/add", "instance_id": "add__1", "patch": bug, "image_name": "x", "problem_statement": "wrong",
        "FAIL_TO_PASS": ["tests/test_add.py::test_add[a b]"], "PASS_TO_PASS": ["tests/test_add.py::test_zero"],
    }  # fmt: skip
    found = swebench.row_of(row)
    assert found.variant == "swe-smith"
    task, losses = swebench.to_task(found, InlineEnvironment(files={"add.py": GOLD}), whole)
    assert task.environment.files["add.py"] == BROKEN and task.gold == {"add.py": GOLD}
    assert "image_name" in losses.found


def test_columns_of_swe_bench_pro():
    row = {
        "repo": "r", "instance_id": "p-1", "base_commit": "c", "patch": "", "test_patch": "", "problem_statement": "s",
        "fail_to_pass": "['t.py::test_a', \"t.py::test_b[it's]\"]", "pass_to_pass": "[]", "before_repo_set_cmd": "git x",
        "selected_test_files_to_run": "['t.py']",
    }  # fmt: skip
    found = swebench.row_of(row)
    assert found.variant == "swe-bench-pro" and found.fail_to_pass == ("t.py::test_a", "t.py::test_b[it's]")
    assert set(found.dump()) == set(row), "columns keep their spelling"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"FAIL_TO_PASS": "__import__('os').abort()"}, "FAIL_TO_PASS is neither a list"),
        ({"FAIL_TO_PASS": "[1]"}, "is not a list of names"),
        ({"patch": 3}, "patch is a int, not text"),
        ({"repo": None, "patch": None}, "has no column patch"),
    ],
)
def test_a_bad_row_is_refused_by_its_column(change, said):
    row = {**swebench.export(TASK, START)[0].dump(), **change}
    with pytest.raises(FormatRefused, match=said):
        swebench.row_of({name: value for name, value in row.items() if value is not None}, "line 1")


def test_bad_rows_are_refused_by_their_line_and_patch():
    good = "".join(swebench.lines([swebench.export(TASK, START)[0]]))
    with pytest.raises(FormatRefused, match="line 2 is not JSON"):
        swebench.load(good + "{\n")
    with pytest.raises(FormatRefused, match="is there twice"):
        swebench.load(good + good)
    (row,) = swebench.load(good)
    row.patch = row.patch.replace("a/add.py", "a/../../etc/passwd")
    with pytest.raises(FormatRefused, match="swe-add-1: patch: patch line"):
        swebench.to_task(row, InlineEnvironment(files={"add.py": BROKEN}), START)
