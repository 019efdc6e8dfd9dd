"""Pairs of a fix and its tests out of a real git repository, as tasks."""

import asyncio
import subprocess
from types import SimpleNamespace

import pytest

from sandbox.backends.base import Patch
from sandbox.errors import PackageError, TaskError
from sandbox.generators.building.drafts import Reason
from sandbox.generators.building.yields import Yield
from sandbox.generators.mining import changed_definitions, is_pair, is_test, mined, taken_back
from sandbox.generators.registry import generate_tasks
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.report import Verdict
from sandbox.repositories import pins
from sandbox.repositories.commits import Change, commits
from sandbox.tasks.leaks import scan_task

pytestmark = pytest.mark.timeout(600)  # dozens of sandboxed test runs: a minute on a quiet machine

FIRST = {
    "dock/__init__.py": '''"""A dock."""


def berths(lengths, space):
    """How many of the ships, in order, find a place."""
    used = 0
    for count, length in enumerate(lengths):
        used += length
        if used >= space:
            return count
    return len(lengths)


def longest(lengths):
    return max(lengths)
''',
    "tests/test_dock.py": """from dock import berths, longest


def test_berths():
    assert berths([5, 4, 3], 10) == 2


def test_longest():
    assert longest([2, 7]) == 7
""",
}
FIXED = {
    "dock/__init__.py": FIRST["dock/__init__.py"].replace("used >= space", "used > space"),
    "tests/test_dock.py": FIRST["tests/test_dock.py"]
    + "\n\ndef test_a_ship_that_just_fits():\n    assert berths([5, 5], 10) == 2\n    assert berths([4] * 30, 96) == 24\n",
}
DOCUMENTED = '    """The longest."""\n    return max(lengths)'
LATER = {"dock/__init__.py": FIXED["dock/__init__.py"].replace("    return max(lengths)", DOCUMENTED)}
MOVED = {
    "dock/__init__.py": LATER["dock/__init__.py"].replace("return max(lengths)", "return max(lengths, default=40)"),
    "tests/test_dock.py": FIXED["tests/test_dock.py"] + "\n\ndef test_no_ship():\n    assert longest([]) == 40\n",
}


def git(repo, *arguments):
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *arguments], cwd=repo, check=True, capture_output=True, text=True).stdout


def write(repo, files, message):
    for path, text in files.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", message)


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    made = tmp_path_factory.mktemp("repo")
    git(made, "init", "-q", "-b", "main")
    write(made, FIRST, "A dock")
    write(made, FIXED, "Fix berths for a ship that just fits")
    write(made, LATER, "Say what longest does")
    write(made, MOVED, "Add longest of nothing")
    write(made, {"README.md": "# dock\n"}, "Readme")
    return made


@pytest.fixture(scope="module")
def dock(repo, build):
    files = {path: (repo / path).read_text() for path in ("dock/__init__.py", "tests/test_dock.py", "README.md")}
    return asyncio.run(build(files, pins.Pin("dock", "1.0", ("0" * 64,))))


def test_the_history_is_read_as_data(repo):
    found = commits(str(repo))
    subjects = ["Readme", "Add longest of nothing", "Say what longest does", "Fix berths for a ship that just fits"]
    assert [one.subject for one in found] == subjects, "the first has no parent to compare with"
    assert [is_pair(one) for one in found] == [False, True, False, True]
    fix = {change.path: change for change in found[-1].changes}
    assert fix["dock/__init__.py"].before == FIRST["dock/__init__.py"]
    assert fix["tests/test_dock.py"].after == FIXED["tests/test_dock.py"]
    assert len(commits(str(repo), depth=2)) == 1, "the edge of what was fetched has no parent either"
    with pytest.raises(PackageError, match="not a branch"):
        commits(str(repo), revision="--upload-pack=x")


def test_a_commit_is_taken_back_exactly_or_not_at_all():
    fix = Change("dock/__init__.py", FIRST["dock/__init__.py"], FIXED["dock/__init__.py"])
    assert taken_back(FIXED["dock/__init__.py"], fix) == FIRST["dock/__init__.py"]
    assert "used >= space" in taken_back(MOVED["dock/__init__.py"], fix)
    assert taken_back(FIXED["dock/__init__.py"].replace("count\n", "count + 0\n"), fix) is None
    assert taken_back(FIXED["dock/__init__.py"] * 2, fix) is None, "two places that look alike"
    assert taken_back("x\n", Change("new.py", None, "x\n")) is None
    assert changed_definitions(FIRST["dock/__init__.py"], FIXED["dock/__init__.py"]) == ["berths"]
    assert changed_definitions("a = 1\ndef f(): pass\n", "a = 2\ndef f(): pass\n") == ["<module>"]
    assert is_test("tests/helper.py") and is_test("pkg/test_x.py") and not is_test("pkg/contest.py")


@pytest.mark.integration
def test_commits_become_tasks_whose_fix_is_nowhere(repo, dock, environments, backend):
    found = Yield(generator="mining", package="dock")

    async def make():
        return [
            task
            for split in ("train", "held-out")
            async for task in generate_tasks(
                environments, dock, backend=backend, generator="mining", split=split, k=1, found=found, history=commits(str(repo))
            )
        ]  # fmt: skip

    tasks = asyncio.run(make())
    by_place = {task.family.rpartition(":")[2]: task for task in tasks}
    assert by_place.keys() == {"berths", "longest"}, found.rejected
    fix = by_place["berths"]
    assert (fix.source, fix.category, by_place["longest"].category) == ("mining", "debug", "feature")
    assert fix.verifier.fail_to_pass == ("tests/test_dock.py::test_a_ship_that_just_fits",)
    assert "just_fits" not in fix.environment.overrides["tests/test_dock.py"], "the test patch is hidden"
    assert "used >= space" in fix.environment.overrides["dock/__init__.py"]
    assert "default=40" in fix.environment.overrides["dock/__init__.py"], "later work stays"
    assert "used > space" not in fix.instruction
    assert scan_task(environments, fix) == []
    for patch, verdict in ((from_files(fix, fix.gold), Verdict.PASSED), (Patch(), Verdict.FAILED)):
        report = asyncio.run(grade(backend=backend, environments=environments, task=fix, patch=patch))
        assert report.verdict is verdict


def test_a_history_as_people_leave_it(tmp_path):
    """Merges, renames, pictures, submodules, tests that were only edited, and tests that did not come with their fix."""
    git(tmp_path, "init", "-q", "-b", "main")
    first = {**FIRST, "docs/a.png": "x"}
    write(tmp_path, first, "Start")
    git(tmp_path, "checkout", "-q", "-b", "fix")
    (tmp_path / "docs/a.png").write_bytes(b"\x89PNG\xff\xfe")
    write(tmp_path, FIXED, "Fix berths")
    git(tmp_path, "checkout", "-q", "main")
    write(tmp_path, {"README.md": "# dock\n"}, "Readme")
    git(tmp_path, "merge", "-q", "--no-ff", "-m", "Merge fix", "fix")
    edited = FIXED["tests/test_dock.py"].replace("longest([2, 7])", "longest(iter([2, 7]))")
    counted = FIXED["dock/__init__.py"].replace("max(lengths)", "max(list(lengths))")
    git(tmp_path, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/other")
    write(tmp_path, {"dock/__init__.py": counted, "tests/test_dock.py": edited}, "Count what is a list")
    git(tmp_path, "mv", "dock/__init__.py", "dock/counting.py")
    write(tmp_path, {"dock/__init__.py": "from dock.counting import *\n", "tests/test_more.py": "x = 1\n"}, "Move")
    (tmp_path / "dock/latin.py").write_bytes(b"# \xff\n")
    write(tmp_path, {"tests/test_more.py": "x = 2\n"}, "Code that is no text")
    found = {commit.subject: commit for commit in commits(str(tmp_path))}
    assert found.keys() == {"Readme", "Fix berths", "Count what is a list", "Move"}, "a merge is its parts"
    assert {change.path for change in found["Fix berths"].changes} == FIXED.keys(), "a picture plays no part"
    assert {change.path for change in found["Count what is a list"].changes} == FIXED.keys(), "nor does a submodule"

    ids = ("test_berths", "test_longest", "test_a_ship_that_just_fits")
    today = {"dock/counting.py": counted, "dock/__init__.py": counted, "tests/test_dock.py": edited}
    built = SimpleNamespace(name="dock", tests={f"tests/test_dock.py::{name}": 0.01 for name in ids}, covered={})
    builder = SimpleNamespace(read=today.__getitem__, built=built)

    def drafts(subject):
        return [d for split in ("train", "held-out") for d in mined(builder, found[subject], split)]

    (fix,) = drafts("Fix berths")
    assert fix.groups == (("tests/test_dock.py::test_a_ship_that_just_fits",),), "the test that it brought"
    assert "used >= space" in fix.broken["dock/__init__.py"] and "max(list(lengths))" in fix.broken["dock/__init__.py"]
    (edit,) = drafts("Count what is a list")
    assert edit.groups == (("tests/test_dock.py::test_longest",),), "of an edited file, the test that changed"
    assert all(d.reason is Reason.MOVED_ON for d in drafts("Move")), "a file that came cannot be taken back"


async def test_without_a_history_there_is_nothing_to_mine(dock, environments, backend):
    tasks = generate_tasks(environments, dock, backend=backend, generator="mining")
    with pytest.raises(TaskError, match="commits of a git repository"):
        await anext(tasks)
