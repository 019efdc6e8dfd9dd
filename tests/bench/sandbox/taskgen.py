"""`make bench NAME=taskgen`: valid tasks a minute of each generator, for a package whose suite takes two seconds.

The package is written here: modules of small functions, others that use them, tests that wait a little, so that the whole
suite takes about two seconds of run time, and a history of fixes with their tests; no two modules have a telling line in
common. Every task that counts has its controls green, three times each, in fresh sandboxes. `valid_per_minute` is that of
the mutation generator. After the clock has stopped, all controls (exploits and mutants as well) run over SAMPLE of the kept
tasks; `all_controls_green` is the share that holds. `sandboxes_per_task` counts fresh sandboxes, rejected drafts among them:
unlike seconds it does not depend on the machine. `generators_yielding` counts generators that gave a task of this package.

--packages names packages of `sandbox/repositories/packages.lock` (`toolz,cachetools` if not said, `none` for none): each
generator makes a task of them too, as `<package>_<generator>_kept`, `_tried` and `_seconds`. Only mutation may be missing
there, it is measured above, and mining: a source distribution has no history. A generator that is not done after --seconds
is stopped; what it kept until then counts.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.backends.base import Backend, Sandbox
from sandbox.backends.choice import default_backend
from sandbox.generators.building.instructions import STYLES
from sandbox.generators.building.yields import Yield
from sandbox.generators.registry import GENERATORS, GeneratorName, generate_tasks
from sandbox.grading.controls import run_controls
from sandbox.packages.build import BuiltPackage, build_archive, build_packages
from sandbox.repositories import pins
from sandbox.repositories.commits import Change, Commit
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from tests.bench import report
from tests.sandbox.shelf import put_toolchain, write_sdist

GOALS: dict[str, report.Goal] = {"valid_per_minute": (">=", 5.0), "all_controls_green": (">=", 1.0)}
MODULES = 20
SUITE_SECONDS = 2.0
SAMPLE = 2
GENERATED: tuple[GeneratorName, ...] = tuple(name for name in GENERATORS if name != "mutation")
OTHERS = 2
"""Tasks of each other generator, for its yield."""
OF_PACKAGES = 1
"""Tasks of each generator from each further package."""
FIXES = 4
"""Commits of the history."""
CACHE = Path(__file__).parents[3] / ".data" / "bench-taskgen"
"""Where further packages are built and stay: fetching and building them is no part of what is measured."""
PIN = pins.Pin("warehouse", "1.0", ("0" * 64,))

PRODUCT = '''"""Part {n} of a warehouse."""


def total_{n}(sizes, limit=100):
    """Sum of the sizes below `limit` in part {n}.

    >>> total_{n}([1, 5, 3])
    9
    >>> total_{n}([100, 7])
    7
    """
    sum_{n} = 0
    for size_{n} in sizes:
        if size_{n} < limit:
            sum_{n} += size_{n}
    return sum_{n}


def pick_{n}(names, start, width=2):
    """`width` of the names of part {n} from `start` on, upper case."""
    if start < 0 or width < 1:
        raise ValueError("nothing to pick in part {n}")
    chosen_{n} = sorted(names)[start : start + width]
    return [name_{n}.upper() for name_{n} in chosen_{n}]


class Shelf{n}:
    def __init__(self, room):
        self.room_{n} = room
        self.items_{n} = {{}}

    def put(self, name, width):
        if name in self.items_{n} or width > self.left():
            return False
        self.items_{n}[name] = width
        return True

    def left(self):
        return self.room_{n} - total_{n}(self.items_{n}.values(), self.room_{n} + 1)
'''

DESK = '''"""Desk {n} of a warehouse."""

from warehouse.part_{n} import total_{n}


class Desk{n}:
    """Orders at desk {n}, within a budget."""

    def __init__(self, budget):
        self.budget_{n} = budget

    def order(self, sizes):
        """Whether desk {n} can pay for the sizes; then they are paid."""
        cost_{n} = total_{n}(sizes, 1000)
        if cost_{n} > self.budget_{n}:
            return False
        self.budget_{n} -= cost_{n}
        return True
'''

DESK_TESTS = """import time

import pytest

from warehouse.desk_{n} import Desk{n}


@pytest.fixture(autouse=True)
def machine():
    time.sleep({pause})


def test_order_at_{n}():
    desk_{n} = Desk{n}(10)
    assert desk_{n}.order([4, 3]) and desk_{n}.budget_{n} == 3


def test_orders_at_{n}():
    desk_{n} = Desk{n}(10)
    assert desk_{n}.order([4, 4]) and not desk_{n}.order([3])


def test_no_order_at_{n}():
    assert Desk{n}(0).order([])
"""

TESTS = """import time

import pytest

from warehouse.part_{n} import Shelf{n}, pick_{n}, total_{n}


@pytest.fixture(autouse=True)
def machine():
    time.sleep({pause})


@pytest.mark.parametrize("sizes, expected", [([1, 5, 3], 9), ([], 0), ([100, 7], 7), ([99, 99, 200], 198)])
def test_total_{n}(sizes, expected):
    assert total_{n}(sizes) == expected


def test_pick_{n}():
    assert pick_{n}(["c", "a", "b", "d"], 1) == ["B", "C"]


def test_pick_one_{n}():
    assert pick_{n}(["c", "a"], 0, 1) == ["A"]


def test_pick_nothing_{n}():
    with pytest.raises(ValueError):
        pick_{n}(["c", "a"], 0, 0)


def test_shelf_{n}():
    shelf_{n} = Shelf{n}(10)
    assert shelf_{n}.put("a", 4) and shelf_{n}.put("b", 6)
    assert not shelf_{n}.put("c", 1)


def test_shelf_once_{n}():
    shelf_{n} = Shelf{n}(10)
    assert shelf_{n}.put("a", 4)
    assert not shelf_{n}.put("a", 4)
    assert shelf_{n}.left() == 6
"""
TESTS_OF_MODULE = 12
NEW_TEST = "\n\ndef test_pick_nothing_{n}():"


def warehouse() -> dict[str, str]:
    """The package; the tests wait so long that all of them take SUITE_SECONDS."""
    pause = SUITE_SECONDS / (MODULES * TESTS_OF_MODULE)
    files = {"warehouse/__init__.py": '"""A warehouse."""\n', "README.md": "# warehouse\n"}
    for n in range(MODULES):
        files[f"warehouse/part_{n}.py"] = PRODUCT.format(n=n)
        files[f"warehouse/desk_{n}.py"] = DESK.format(n=n)
        files[f"tests/test_part_{n}.py"] = TESTS.format(n=n, pause=round(pause, 5))
        files[f"tests/test_desk_{n}.py"] = DESK_TESTS.format(n=n, pause=round(pause, 5))
    return files


def history() -> tuple[Commit, ...]:
    """Fixes of `pick`, each with the test that it brought."""
    files = warehouse()
    made = []
    for n in range(FIXES):
        path, tests = f"warehouse/part_{n}.py", f"tests/test_part_{n}.py"
        wrong = files[path].replace("if start < 0 or width < 1:", "if start < 0:")
        head, _, rest = files[tests].partition(NEW_TEST.format(n=n))
        before = f"{head}\n\ndef test_shelf_{n}():{rest.partition(f'def test_shelf_{n}():')[2]}"
        changes = (Change(path, wrong, files[path]), Change(tests, before, files[tests]))
        made.append(Commit(f"{n:040x}", f"Fix pick_{n} for a width of nothing", changes))
    return tuple(made)


async def build(backend: Backend, store: EnvironmentStore, folder: Path) -> BuiltPackage:
    archive = write_sdist(folder / "warehouse-1.0.tar.gz", warehouse(), top="warehouse-1.0")
    return await build_archive(store, archive, PIN, backend=backend, cache=put_toolchain(folder / "downloads"))


async def measure(
    folder: Path, count: int, packages: list[str], seconds: float
) -> tuple[dict[str, float], dict[str, object]]:
    backend, store = default_backend(), EnvironmentStore(folder / "environments")
    try:
        built = await build(backend, store, folder)
        started = counted(backend)
        found = Yield(generator="mutation", package=built.name)
        made: list[TaskSpec] = []
        async for task in generate_tasks(store, built, backend=backend, count=count, styles=STYLES, found=found):
            made.append(task)
            print(f"{len(made)}/{count}: {task.id}", flush=True)
        sandboxes = started() / max(1, len(made))
        show(found)
        others = [await other(store, built, backend, name, OTHERS, seconds) for name in GENERATED]
        further = []
        shutil.rmtree(CACHE / "mutations", ignore_errors=True)  # tasks of another run would be taken from there
        for package in await build_packages(EnvironmentStore(CACHE), packages, backend=backend):
            own = EnvironmentStore(CACHE)
            names = [name for name in GENERATED if name != "mining"]
            further += [await other(own, package, backend, name, OF_PACKAGES, seconds) for name in names]
        green = 0
        for task in made[:SAMPLE]:
            controls = await run_controls(backend=backend, environments=store, task=task, full=True)
            green += controls.ok
            print(f"{task.id}: {'all controls green' if controls.ok else controls.reason}, {controls.seconds:.0f} s")
    finally:
        await backend.close()
    metrics = {
        "valid_per_minute": round(found.per_minute, 2),
        "all_controls_green": green / min(len(made), SAMPLE) if made else 0.0,
        "generators_yielding": float(sum(one.kept > 0 for one in (found, *others))),
        "mutation_tasks": float(found.kept),
        "mutation_yield": round(found.share, 3),
        "mutation_seconds": round(found.seconds, 1),
        "seconds_per_task": round(found.seconds / max(1, found.kept), 2),
        "sandboxes_per_task": round(sandboxes, 2),
        "tried_per_task": round(found.tried / max(1, found.kept), 2),
    }
    for one in others:
        metrics |= {
            f"{one.generator}_yield": round(one.share, 3),
            f"{one.generator}_per_minute": round(one.per_minute, 2),
        }
    for one in further:
        head = f"{one.package}_{one.generator}"
        metrics |= {f"{head}_kept": one.kept, f"{head}_tried": one.tried, f"{head}_seconds": round(one.seconds, 1)}
    return metrics, {"suite_seconds": round(sum(built.tests.values()), 2), "tests": len(built.tests)}


def counted(backend: Backend) -> Callable[[], int]:
    """Count the sandboxes that `backend` starts from now on."""
    begun = 0
    start = backend.start

    async def counting(*arguments: Any, **options: Any) -> Sandbox:
        nonlocal begun
        begun += 1
        return await start(*arguments, **options)

    backend.start = counting  # type: ignore[method-assign]
    return lambda: begun


async def other(
    store: EnvironmentStore, built: BuiltPackage, backend: Backend, name: GeneratorName, count: int, seconds: float
) -> Yield:
    """What a generator gives, within a time."""
    found = Yield(generator=name, package=built.name)
    made = 0
    try:
        async with asyncio.timeout(seconds):
            async for task in generate_tasks(
                store, built, backend=backend, generator=name, count=count, found=found,
                history=history() if name == "mining" else (),
            ):  # fmt: skip
                made += 1
                print(f"{name}: {task.id}", flush=True)
    except TimeoutError:
        print(f"{name}: stopped after {seconds:.0f} s")
    found.kept = made
    show(found)
    return found


def show(found: Yield) -> None:
    print(f"{found.package}, {found.generator}: {found.kept} kept of {found.tried} in {found.seconds:.1f} s")
    for reason, count in sorted(found.rejected.items(), key=lambda item: -item[1]):
        print(f"    {count:4d}  {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=12, help="tasks to make (12)")
    parser.add_argument(
        "--packages", default="toolz,cachetools", help="further packages of the lock (toolz,cachetools)"
    )
    parser.add_argument("--seconds", type=float, default=150.0, help="a generator may take for its tasks (150)")
    arguments = parser.parse_args()
    packages = [] if arguments.packages == "none" else arguments.packages.split(",")
    with tempfile.TemporaryDirectory() as folder:
        metrics, conditions = asyncio.run(measure(Path(folder), arguments.tasks, packages, arguments.seconds))
    conditions["packages"] = ",".join(packages) or "none"
    conditions["libcst"] = importlib.metadata.version("libcst")
    conditions["cores"] = len(os.sched_getaffinity(0))
    report.emit("taskgen", metrics, goals=GOALS, conditions=conditions)


if __name__ == "__main__":
    main()
