"""Deleted features, bugs at a distance and several bugs, over a package of our own in real sandboxes."""

import ast
import asyncio

import pytest

from sandbox.backends.base import Patch
from sandbox.errors import TaskError
from sandbox.generators.analysis.excision import without
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.generators.building.yields import Yield
from sandbox.generators.mutation.combination import join
from sandbox.generators.registry import generate_tasks
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.report import Verdict

pytestmark = pytest.mark.timeout(600)  # dozens of sandboxed test runs: a minute on a quiet machine

FILES = {
    "yard/__init__.py": '"""A yard."""\nfrom yard.counting import (\n    heaviest,\n    total,\n)\nfrom yard.loads import Truck\n'
    '\n__all__ = ["Truck", "heaviest", "total"]\n',
    "yard/counting.py": '''"""Counting."""

UNIT = 1


def total(sizes):
    """The sum of the sizes."""
    result = 0
    for size in sizes:
        result += size
    return result


def _ordered(sizes):
    return sorted(sizes, reverse=True)


def heaviest(sizes, count=1):
    """The `count` largest of the sizes, the largest first."""
    return _ordered(sizes)[:count]
''',
    "yard/loads.py": '''"""Trucks."""
from yard.counting import total


class Truck:
    """A truck that holds loads up to its limit."""

    def __init__(self, limit):
        self.limit = limit
        self.loads = []

    def load(self, weight):
        """Take a load if there is room."""
        if total(self.loads) + weight > self.limit:
            return False
        self.loads.append(weight)
        return True
''',
    "tests/test_counting.py": """from yard import heaviest, total


def test_total():
    assert total([1, 2, 3]) == 6


def test_total_of_nothing():
    assert total([]) == 0


def test_heaviest():
    assert heaviest([1, 3, 2]) == [3]


def test_two_heaviest():
    assert heaviest([1, 3, 2], 2) == [3, 2]
""",
    "tests/test_trucks.py": """from yard import Truck


def test_load():
    truck = Truck(10)
    assert truck.load(4)
    assert truck.load(6)


def test_full():
    truck = Truck(10)
    assert truck.load(8)
    assert not truck.load(4)


def test_empty():
    assert Truck(1).loads == []
""",
    "docs/api.md": "# API\n\n- `total(sizes)`\n- `heaviest(sizes, count=1)` gives the largest\n- other words\n",
}
HEAVIEST = "yard:yard/counting.py:heaviest"


@pytest.fixture(scope="module")
def yard(build):
    from sandbox.repositories import pins

    return asyncio.run(build(FILES, pins.Pin("yard", "1.0", ("0" * 64,))))


async def made(environments, backend, yard, generator, **options):
    found = Yield(generator=generator, package="yard")
    tasks = [
        task
        for split in ("train", "held-out")
        async for task in generate_tasks(
            environments, yard, backend=backend, generator=generator, split=split, k=1, found=found, **options
        )
    ]
    return tasks, found


@pytest.mark.integration
async def test_a_deleted_feature(environments, backend, yard):
    tasks, found = await made(environments, backend, yard, "deletion")
    task = next(t for t in tasks if t.family == HEAVIEST)
    assert task.source == "deletion" and task.category == "feature" and found.kept >= 1
    shown = task.environment.overrides
    assert "heaviest" not in shown["yard/counting.py"] and "_ordered" not in shown["yard/counting.py"]
    assert "UNIT = 1" in shown["yard/counting.py"] and "def total" in shown["yard/counting.py"]
    assert "heaviest" not in shown["yard/__init__.py"] and '"total"' in shown["yard/__init__.py"]
    assert "heaviest" not in shown["tests/test_counting.py"] and "def test_total()" in shown["tests/test_counting.py"]
    assert "heaviest" not in shown["docs/api.md"] and "other words" in shown["docs/api.md"]
    for path in shown:
        if path.endswith(".py"):
            ast.parse(shown[path])
    assert set(task.gold) == {"yard/counting.py", "yard/__init__.py"}
    assert {"tests/test_counting.py::test_heaviest", "tests/test_counting.py::test_two_heaviest"} <= set(
        task.verifier.fail_to_pass
    )
    assert "def heaviest(sizes, count=1):" in task.instruction and "sorted" not in task.instruction
    fix = from_files(task, task.gold)
    for patch, verdict in ((fix, Verdict.PASSED), (Patch(), Verdict.FAILED)):
        assert (await grade(backend=backend, environments=environments, task=task, patch=patch)).verdict is verdict


@pytest.mark.integration
async def test_what_others_need_is_no_feature(environments, backend, yard):
    tasks, _ = await made(environments, backend, yard, "deletion")
    assert "yard:yard/counting.py:total" not in {task.family for task in tasks}


async def test_a_bug_at_a_distance_is_shown_by_a_test_that_does_not_name_its_place(environments, backend, yard):
    tasks, _ = await made(environments, backend, yard, "distance")
    assert tasks
    for task in tasks:
        assert task.source == "distance" and task.family == "yard:yard/counting.py:total"
        assert "Truck(" in task.instruction and "total" not in task.instruction


@pytest.mark.integration
async def test_several_bugs_each_show_a_failure(environments, backend, yard):
    for seed in range(2, 10):  # so small a package has two pairs of functions; which mutants meet is drawn
        tasks, found = await made(environments, backend, yard, "combination", seed=seed)
        if tasks:
            break
    assert tasks, found.rejected
    for task in tasks:
        assert task.source == "combination" and task.instruction.count("behaves wrongly") == 2
        assert len(task.family.split("+")) == 2
        if len(task.gold) == 2:
            for path in task.gold:
                half = from_files(task, {path: task.gold[path]})
                report = await grade(backend=backend, environments=environments, task=task, patch=half)
                assert report.verdict is Verdict.FAILED


@pytest.mark.integration
async def test_styles_and_yields_are_recorded(environments, backend, yard):
    tasks, found = await made(environments, backend, yard, "mutation", styles=("terse",), count=1)
    assert tasks and found.tried >= found.kept + sum(found.rejected.values())
    assert found.seconds > 0 and found.control_seconds > 0
    assert all(len(task.instruction) < 260 for task in tasks)
    again = Yield(generator="mutation", package="yard")
    async for _ in generate_tasks(
        environments, yard, backend=backend, split="held-out", k=1, styles=("terse",), count=1, found=again
    ):
        pass
    assert again == found, "the record of the last run is kept with its tasks"


async def test_an_unknown_generator_is_named(environments, backend, yard):
    with pytest.raises(TaskError, match=r"no generator 'magic'\. There are mutation"):
        await made(environments, backend, yard, "magic")


def test_removal_keeps_the_rest_as_it_is():
    text = "from a import b, c  # here\n__all__ = ['b', 'c']\n\n# note\ndef b():\n    pass\n\n\ndef  c( ):\n    pass\n"
    assert without(text, {"b"}, {"b"}) == "from a import c  # here\n__all__ = ['c']\n\n\n\ndef  c( ):\n    pass\n"


def bug(path: str, right: str, wrong: str) -> Draft:
    return Draft(
        source="mutation", category="debug", operator="x", broken={path: wrong}, gold={path: right},
        expected=("t.py::a", "t.py::b"), family=f"p:{path}:f",
    )  # fmt: skip


def test_bugs_of_one_file_are_joined_and_each_is_needed():
    right = "x = 1\ny = 2\n"
    first, second = bug("a.py", right, "x = 9\ny = 2\n"), bug("a.py", right, "x = 1\ny = 3\n")
    made = join([(first, frozenset({"t.py::a"})), (second, frozenset({"t.py::b"}))])
    assert isinstance(made, Draft) and made.broken == {"a.py": "x = 9\ny = 3\n"}
    swapped = join([(second, frozenset({"t.py::b"})), (first, frozenset({"t.py::a"}))])
    assert isinstance(swapped, Draft) and swapped.broken == made.broken
    hidden = join([(first, frozenset({"t.py::a"})), (second, frozenset({"t.py::a"}))])
    assert isinstance(hidden, Rejected) and hidden.reason is Reason.NOT_ALL_NEEDED
    clash = join([(first, frozenset({"t.py::a"})), (bug("a.py", right, "x = 7\ny = 2\n"), frozenset({"t.py::b"}))])
    assert isinstance(clash, Rejected) and clash.reason is Reason.INVALID
