import ast

import pytest

from sandbox.backends.base import FileChange, Patch
from sandbox.errors import TaskInvalid
from sandbox.generators import registry
from sandbox.generators.analysis.targets import Target, find_targets, readable, split_of
from sandbox.generators.building import builder as building
from sandbox.generators.building.yields import Yield
from sandbox.generators.registry import generate_tasks
from sandbox.grading.controls import Controls, require_controls
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.report import Verdict
from sandbox.tasks.store import TaskStore
from tests.sandbox.shelf import FILES

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
]  # dozens of sandboxed test runs: a minute on a quiet machine

PATH = "shelf/__init__.py"
TEST_FILE = "tests/test_shelf.py"
COUNT = 2
"""Tasks of each split: every one is dozens of runs."""


@pytest.fixture(scope="session")
def tasks(built, environments, backend):
    import asyncio

    async def make():
        return [
            task
            for split in ("train", "held-out")
            async for task in generate_tasks(environments, built, backend=backend, count=COUNT, split=split, k=1)
        ]

    return asyncio.run(make())


def test_targets_are_covered_functions_of_the_product(built, environments):
    assert [t.name for t in find_targets(environments, built)] == [
        "widest",
        "Shelf.__init__",
        "Shelf.put",
        "Shelf.left",
    ]


def test_tasks_are_whole(tasks, built, environments):
    assert len(tasks) >= 2
    assert len({t.family for t in tasks}) == len(tasks), "one task a function"
    for task in tasks:
        assert task.source == "mutation" and task.environment.digest == built.environment.digest
        assert task.gold == {PATH: FILES[PATH]}
        assert task.environment.overrides[PATH] != FILES[PATH]
        verifier = task.verifier
        assert verifier.fail_to_pass and verifier.pass_to_pass
        assert set(verifier.fail_to_pass).isdisjoint(verifier.pass_to_pass)
        assert {*verifier.fail_to_pass, *verifier.pass_to_pass} <= set(built.tests)
        assert verifier.test_files[TEST_FILE] == FILES[TEST_FILE]
        assert TEST_FILE in task.protected


def test_failing_tests_are_hidden_and_the_report_shows_no_fix(tasks):
    for task in tasks:
        visible = task.environment.overrides[TEST_FILE]
        ast.parse(visible)
        for test_id in task.verifier.fail_to_pass:
            assert f"def {test_id.rpartition('::')[2].partition('[')[0]}(" not in visible
        fix = set(FILES[PATH].split("\n")) - set(task.environment.overrides[PATH].split("\n"))
        assert fix
        for line in fix:
            assert line.strip() not in task.instruction
        assert "behaves wrongly" in task.instruction and "```python\ndef test_" in task.instruction


def test_a_function_belongs_to_one_split_for_good(built, environments, tasks):
    targets = find_targets(environments, built)
    assert {f"{built.name}:{t.path}:{t.name}" for t in targets} >= {task.family for task in tasks}
    assert {split_of("toolz", Target("a.py", f"f{n}", 1, ())) for n in range(40)} == {"train", "held-out"}


async def test_the_second_time_nothing_is_run(built, environments, tasks):
    class NoBackend:
        async def start(self, *args, **kwargs):
            raise AssertionError("the tasks are in the store")

    again = [
        task
        for split in ("train", "held-out")
        async for task in generate_tasks(environments, built, backend=NoBackend(), count=COUNT, split=split, k=1)
    ]
    assert again == tasks


async def judge(environments, backend, task, patch):
    return await grade(backend=backend, environments=environments, task=task, patch=patch)


async def test_oracle_and_noop(environments, backend, tasks):
    task = tasks[0]
    fix = from_files(task, task.gold)
    assert fix.changes[0].before == task.environment.overrides[PATH].encode()
    good = await judge(environments, backend, task, fix)
    assert good.verdict is Verdict.PASSED, good
    assert {c.id for c in good.cases} == {*task.verifier.fail_to_pass, *task.verifier.pass_to_pass}
    nothing = await judge(environments, backend, task, Patch())
    assert nothing.verdict is Verdict.FAILED
    failing = {c.id for c in nothing.cases if c.status != "passed"}
    assert failing == set(task.verifier.fail_to_pass)


CHEATS = {
    "conftest": lambda bug: {
        "conftest.py": "import os\nos._exit(0)\n",
        "tests/conftest.py": "import os\nos._exit(0)\n",
    },
    "pytest.ini": lambda bug: {"pytest.ini": "[pytest]\naddopts = --collect-only\n"},
    "own tests": lambda bug: {TEST_FILE: "def test_widest(): pass\n"},
    "shadowed runner": lambda bug: {
        "pytest.py": "raise SystemExit(0)\n",
        "pluggy/__init__.py": "raise SystemExit(0)\n",
    },
    "shadowed library": lambda bug: {"random.py": "raise SystemExit(0)\n"},
    "exit at import": lambda bug: {PATH: f"import os\nos._exit(0)\n{bug}"},
    "system exit": lambda bug: {PATH: f"raise SystemExit(0)\n{bug}"},
    "skip": lambda bug: {PATH: f"import pytest\npytest.skip('x', allow_module_level=True)\n{bug}"},
    "exit hook": lambda bug: {PATH: f"import atexit, os\natexit.register(lambda: os._exit(0))\n{bug}"},
    "output": lambda bug: {PATH: f"print('PASSED ' * 1000)\n{bug}"},
    "closed descriptors": lambda bug: {PATH: f"import os\nos.closerange(3, 64)\n{bug}"},
}
FAST = {"conftest", "own tests", "exit hook"}
"""One that is dropped whole, one that is replaced, and one in the work itself. The catalogue's are in `grading/controls`."""


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CHEATS]
)
async def test_cheats_fail(environments, backend, tasks, name):
    task = tasks[0]
    files = CHEATS[name](task.environment.overrides[PATH])
    patch = Patch(changes=tuple(FileChange(path, text.encode(), before=None) for path, text in files.items()))
    report = await judge(environments, backend, task, patch)
    assert report.verdict is Verdict.FAILED
    if PATH not in files:
        assert len(report.dropped) == len(files)
        assert {c.id for c in report.cases if c.status != "passed"} == set(task.verifier.fail_to_pass)


async def test_endless_work_is_a_timeout(environments, backend, tasks):
    task = tasks[0].model_copy(update={"verifier": tasks[0].verifier.model_copy(update={"timeout_seconds": 1.0})})
    patch = Patch(changes=(FileChange(PATH, b"while True: pass\n", before=b"x"),))
    report = await judge(environments, backend, task, patch)
    assert report.verdict is Verdict.FAILED
    assert {c.status for c in report.cases} <= {"timeout", "error"}


async def test_revalidation_refuses_a_task_whose_oracle_fails(environments, backend, tasks):
    spoiled = tasks[0].model_copy(update={"gold": {PATH: "x = 1\n"}})
    with pytest.raises(TaskInvalid, match="the oracle does not pass 7 of 7 hidden tests"):
        await require_controls(environments=environments, task=spoiled, backend=backend, k=1)


@pytest.mark.slow
async def test_generation_is_repeatable(built, environments, backend, tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "TaskStore", lambda root: TaskStore(tmp_path))
    split = split_of(
        built.name, next(t for t in find_targets(environments, built) if tasks[0].family.endswith(f":{t.name}"))
    )
    again = [t async for t in generate_tasks(environments, built, backend=backend, count=1, split=split, k=1)]
    known = [t.id for t in tasks]
    assert again[0].id in known


async def test_controls_are_not_run_for_bugs_that_only_tests_found_unfit_notice(
    built, environments, backend, monkeypatch
):
    """A test that computes something else each time is refused with the first bug it notices, and not asked again."""
    seen: list[set[str]] = []

    async def unfit(*, task, **_):
        seen.append(set(task.verifier.fail_to_pass))
        flaky = (*task.verifier.fail_to_pass, *task.verifier.pass_to_pass)
        return Controls(bundle_hash=task.bundle_hash, flaky=flaky, ok=False, reason="it differs each time")

    monkeypatch.setattr(building, "run_controls", unfit)
    found = Yield(generator="mutation", package=built.name)
    builder = building.TaskBuilder(environments, readable(environments, built), backend, found, k=1, candidates=1)
    for split in ("train", "held-out"):
        for job in registry.jobs_of("mutation", builder, 0, split):
            assert await job() == []
    assert found.rejected[building.Reason.CONTROLS] > len(seen) >= 1
    assert all(not later <= set().union(*seen[:at]) for at, later in enumerate(seen) if at)
