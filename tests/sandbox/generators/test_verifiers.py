"""Work other than mending: refactoring, structure, migration, tests and documentation, over a package of our own."""

import ast
import asyncio

import pytest

from sandbox.backends.base import Patch
from sandbox.generators.analysis.targets import Target
from sandbox.generators.building.builder import TaskBuilder
from sandbox.generators.building.yields import Yield
from sandbox.generators.registry import jobs_of
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.report import Verdict
from sandbox.repositories import pins

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(600),
]  # dozens of sandboxed test runs: a minute on a quiet machine

FILES = {
    "quay/__init__.py": '"""A quay."""\nfrom quay.counting import heaviest, total\n\n__all__ = ["heaviest", "total"]\n',
    "quay/counting.py": '''"""Counting."""

UNIT = 1


def total(sizes):
    """The sum of the sizes.

    >>> total([1, 2])
    3
    >>> total([4])
    4
    """
    result = 0
    for size in sizes:
        result += size
    return result


def _sorted_down(sizes):
    return sorted(sizes, reverse=True)


def heaviest(sizes, count=1):
    """The `count` largest of the sizes."""
    return _sorted_down(sizes)[:count]


def mean(sizes):
    """Their mean."""
    return total(sizes) / len(sizes)
''',
    "tests/test_total.py": """from quay import total


def test_total():
    assert total([1, 2, 3]) == 6


def test_total_of_nothing():
    assert total([]) == 0
""",
    "tests/test_counting.py": """from quay import heaviest
from quay.counting import mean


def test_heaviest():
    assert heaviest([104, 351, 217]) == [351]


def test_two_heaviest():
    assert heaviest([104, 351, 217], 2) == [351, 217]


def test_mean():
    assert mean([204, 428]) == 316
""",
}
PATH = "quay/counting.py"


@pytest.fixture(scope="module")
def quay(build):
    return asyncio.run(build(FILES, pins.Pin("quay", "1.0", ("0" * 64,))))


def made(environments, backend, quay, generator, place):
    """The generator's task about one function, as its job makes it, and what was tried."""
    found = Yield(generator=generator, package="quay")
    builder = TaskBuilder(environments, quay, backend, found, k=1)
    splits = ("train", "held-out")
    jobs = [job for split in splits for job in jobs_of(generator, builder, 0, split) if place in _names(job)]

    async def make():
        return [task for job in jobs for task in await job()]

    tasks = asyncio.run(make())
    return (tasks or [None])[0], found


def _names(job):
    """Names of the functions that a job is about."""
    return [argument.name for argument in job.args if isinstance(argument, Target)]


def verdict(environments, backend, task, files):
    patch = from_files(task, files) if files else Patch()
    return asyncio.run(grade(backend=backend, environments=environments, task=task, patch=patch)).verdict


def test_a_private_function_is_renamed(environments, backend, quay):
    task, found = made(environments, backend, quay, "rename", "_sorted_down")
    assert task is not None, found.rejected
    assert task.category == "refactor" and not task.environment.overrides
    assert "def _sorted_down" not in task.gold[PATH] and "test_counting.py" in str(task.verifier.pass_to_pass)
    half = FILES[PATH].replace("def _sorted_down", "def _other").replace("return _sorted_down", "return _other")
    assert verdict(environments, backend, task, {PATH: half}) is Verdict.FAILED, "another name than the one wanted"


def test_a_function_moves_to_another_module(environments, backend, quay):
    task, found = made(environments, backend, quay, "move", "heaviest")
    assert task is not None, found.rejected
    (new,) = task.gold.keys() - {PATH}
    assert task.category == "structure" and new in task.instruction
    assert "def _sorted_down" in task.gold[new] and "sorted_down" not in task.gold[PATH], "its helper goes with it"
    copied = {new: task.gold[new]}
    assert verdict(environments, backend, task, copied) is Verdict.FAILED, "the function is there twice"


def test_callers_leave_a_deprecated_function(environments, backend, quay):
    task, found = made(environments, backend, quay, "migration", "total")
    assert task is not None, found.rejected
    start = task.environment.overrides[PATH]
    assert task.category == "migration" and "DeprecationWarning" in start and "return total(sizes) /" in start
    ast.parse(start)
    without = "\n".join(line for line in task.gold[PATH].split("\n") if "warnings" not in line)
    assert verdict(environments, backend, task, {PATH: without}) is Verdict.FAILED, "the warning has to stay"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_written_tests_must_fail_for_wrong_code(environments, backend, quay):
    task, found = made(environments, backend, quay, "tests", "total")
    assert task is not None, found.rejected
    path = "tests/test_total.py"
    assert task.category == "tests" and "def test_total" not in task.environment.overrides[path]
    assert all(FILES[PATH] not in text for text in task.environment.overrides.values())
    lazy = "from quay import total\n\n\ndef test_total():\n    total([1])\n"
    assert verdict(environments, backend, task, {path: lazy}) is Verdict.FAILED
    # The wrong code that is tried is laid out as the right code of the check is, not as the file is.
    looks = "import inspect, quay.counting\n\n\ndef test_it():\n    text = inspect.getsource(quay.counting)\n"
    looks += "    assert 'UNIT = 1\\n\\n\\ndef' in text and 'result += size' in text\n"
    assert verdict(environments, backend, task, {path: looks}) is Verdict.FAILED, (
        "tests of the text, not of what it does"
    )
    own = "from quay import total\n\n\ndef test_mine():\n    assert total([5, 6, 7]) == 18\n    assert total([]) == 0\n"
    assert verdict(environments, backend, task, {path: own}) is Verdict.PASSED


def test_written_examples_must_be_right_and_tell(environments, backend, quay):
    task, found = made(environments, backend, quay, "examples", "total")
    assert task is not None, found.rejected
    start = task.environment.overrides[PATH]
    assert task.category == "docs" and ">>>" not in start and "result += size" in start
    wrong = FILES[PATH].replace(">>> total([4])\n    4", ">>> total([4])\n    5")
    assert verdict(environments, backend, task, {PATH: wrong}) is Verdict.FAILED
    other = FILES[PATH].replace("total([1, 2])\n    3", "total([7, 8])\n    15")
    assert verdict(environments, backend, task, {PATH: other}) is Verdict.PASSED
