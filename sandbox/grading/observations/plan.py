"""The observed form of a task's hidden tests: delivered files, withheld expectations and required reports.

A plan is made once, with the oracle's work, and kept with the task's canaries on the host. Assertions that the oracle
does not meet in observed form, or not every time, stay in the sandbox (*residual*).
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sandbox.grading.adapters.base import Case, Hit, TestRun, files_of
from sandbox.grading.observations.python_tests.first_run import find_first_run, residual_of
from sandbox.grading.observations.python_tests.isolation import Place, place_of
from sandbox.grading.observations.python_tests.lifting import DEEP, RESIDUAL
from sandbox.grading.observations.python_tests.naming import neutral_names, neutral_variables, renamed_id
from sandbox.grading.observations.python_tests.python import STRIDE, Form, Rewritten, rewrite
from sandbox.grading.observations.reports.base import Expected, Frozen, Site
from sandbox.grading.observations.reports.comparing import alike, in_order, names_of, noted_values
from sandbox.grading.observations.reports.judge import judge_hit, judge_test
from sandbox.grading.observations.reports.values import Unreadable, decode
from sandbox.tasks.spec import SuiteVerifier

ROUNDS = 4
"""Runs of the oracle's work in which assertions may be found that cannot be observed."""
MAX_SPARED = 24
"""Runs of the oracle's work in which data files are looked for that the tests do not need."""
MIN_TOLD = 3
"""Letters of a withheld text that a data file would tell."""


class Plan(Frozen):
    """Tests of one task as they are delivered, and what is known about them outside."""

    files: dict[str, str]
    """Delivered test modules: path → text. They go into the sandbox in memory, or without their expectations on disk."""
    on_disk: bool = False
    """Python tests that need their files: they read them, or are imported by each other through the packages of the disk."""
    ids: dict[str, str]
    """Expected test id → the id that the delivered test has."""
    sites: tuple[Site, ...] = ()
    expected: dict[str, tuple[Expected, ...]] = {}
    """Delivered test id → the reports that it must make."""
    preload: tuple[str, ...] = ()
    """Modules that the tests import, imported before the tests are read."""
    blank: dict[str, str] = {}
    """Python: files of the first run (`isolation.py`), which show no expectation. Empty where nothing is residual."""
    hidden: tuple[str, ...] = ()
    """Python: files of the tests that the first run does not need."""
    alone: tuple[str, ...] = ()
    """Python: delivered test ids whose reports are judged in the first run. No others earn bits."""
    beside: tuple[str, ...] = ()
    """Python: delivered test ids that have to pass in the second run, because they decide something inside."""
    notes: dict[str, tuple[int, ...]] = {}
    """Delivered test id → the residual assertions that it runs, and whose notes are the same each time. In JavaScript, Go
    and Rust: the tests that report and decide nothing, where others do; nothing is noted there."""
    unsteady: dict[str, tuple[int, ...]] = {}
    """Delivered test id → assertions whose reports differ between runs of the oracle's work, as the order of a set does."""
    unshown: tuple[str, ...] = ()
    """Data files of tests that stay on the host: what they hold is expected, and withheld with the assertions."""
    hooks: bool = False
    """JavaScript: whether the first run needs hooks and other statements of the test files that show no expectation."""
    first_without: tuple[str, ...] = ()
    """JavaScript, Go and Rust: files that the tests of a first run do not need; others find there what they expect."""
    first: dict[str, str] = {}
    """JavaScript: helper files as the first run holds them, with what it needs of them alone: path → text."""
    compiled_in: tuple[str, ...] = ()
    """Go and Rust: files of the hidden tests that the oracle's product is compiled from, so that no work is blamed for them."""
    residual: int = 0
    """Assertions that are still decided inside the sandbox; in JavaScript, Go and Rust, tests that hold some, in JavaScript
    also hooks and other statements that do."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Test modules to run with the oracle's work, all of their tests."""

    modules: Mapping[str, str]
    preload: tuple[str, ...]
    sites: Mapping[int, str] = dataclasses.field(default_factory=dict)
    """As `Order.sites`."""
    on_disk: bool = False
    """As `Plan.on_disk`."""
    without: frozenset[str] = frozenset()
    """Files of the verifier that are not there."""


RunTrial = Callable[[Trial], Awaitable[TestRun]]


async def make_plan(verifier: SuiteVerifier, run: RunTrial) -> Plan | None:
    """The plan of a task's tests, from runs of the oracle's work: in memory, or on disk where they do not hold there, with
    neutral names where they hold with these, or such names of their classes alone. None when no form holds but their own.

    Raises what `run` raises.
    """
    paths = files_of((*verifier.fail_to_pass, *verifier.pass_to_pass))
    sources = {
        path: verifier.test_files[path] for path in paths if path in verifier.test_files and path.endswith(".py")
    }
    others = [text for path, text in verifier.test_files.items() if path not in sources]
    tried = [dict(sources)]
    for classes_only in (False, True):
        try:
            neutral, renamed = neutral_names(sources, others, classes_only=classes_only)
        except (SyntaxError, ValueError, RecursionError):
            return None
        if neutral in tried:
            continue
        tried.append(neutral)
        if (plan := await _plan_of(verifier, neutral, renamed, run, on_disk=False)) is not None:
            return plan
    for on_disk in (False, True):
        if (plan := await _plan_of(verifier, sources, {}, run, on_disk=on_disk)) is not None:
            return plan
    return None


async def _plan_of(
    verifier: SuiteVerifier, sources: Mapping[str, str], renamed: Mapping[str, Mapping[str, str]], run: RunTrial, *, on_disk: bool
) -> Plan | None:  # fmt: skip
    """`sources` are the test modules, `renamed` as `neutral_names` gives it."""
    wanted = (*verifier.fail_to_pass, *verifier.pass_to_pass)
    preload = imported(sources, verifier.test_files)
    levels: dict[int, int] = {}
    seen: list[dict[str, tuple[Expected, ...]]] = []
    recorded: list[dict[str, list[Hit]]] = []
    for _ in range(ROUNDS):
        try:
            recording = _rewritten(verifier, sources, levels, "record")
        except (SyntaxError, ValueError, RecursionError):
            return None
        ran = await run(Trial({path: made.text for path, made in recording.items()}, preload, on_disk=on_disk))
        ids = {test_id: ran.given.get(own, own) for test_id in wanted for own in [renamed_id(test_id, renamed)]}
        if len(set(ids.values())) != len(ids):
            return None
        sites = {site.number: site for made in recording.values() for site in made.sites}
        worse = _not_met(sites, ids.values(), ran)
        passed = ran.finished and all(ran.status(name) == "passed" for name in ids.values())
        if not passed and not worse:
            if all(levels.get(number, DEEP) == RESIDUAL for number in sites):
                return None
            worse = set(sites)
        for number in worse:
            levels[number] = max(RESIDUAL, levels.get(number, DEEP) - 1)
        if worse:
            seen.clear()
            recorded.clear()
            continue
        hits = {name: [hit for hit in ran.observed.get(name, ()) if hit.site in sites] for name in ids.values()}
        if recorded and recorded[0].keys() != hits.keys():  # parameters that are named otherwise each time
            seen.clear()
            recorded.clear()
        recorded.append(hits)
        seen.append({name: tuple(_split(sites[hit.site], hit)[0] for hit in each) for name, each in hits.items()})
        if len(seen) == 2:
            break
    if not seen:
        return None
    unsteady = {number for other in seen[1:] for number in _different(seen[0], other)}
    for number in unsteady:
        levels[number] = RESIDUAL
    delivered = _rewritten(verifier, sources, levels, "real")
    kept = {site.number: site for made in delivered.values() for site in made.sites}
    expected = {name: tuple(one for one in runs if one.site in kept) for name, runs in seen[0].items()}
    plan = Plan(
        files={path: made.text for path, made in delivered.items()},
        on_disk=on_disk,
        ids=ids,
        sites=tuple(kept.values()),
        expected=expected,
        preload=preload,
    )
    blank = _rewritten(verifier, sources, levels, "blank")
    residual = residual_of(blank, delivered, verifier.test_files)
    again = [{name: [_split(sites[hit.site], hit)[1] for hit in each] for name, each in h.items()} for h in recorded]
    whole = plan
    if residual:
        plan = await _with_first_run(
            verifier, whole.model_copy(update={"residual": residual}), blank, delivered, again, run
        )
    plan = await _with_unshown(verifier, plan, run)
    told = {place_of(name) for name in _told(verifier, plan)}
    if not told:
        return plan
    blank = {path: _showing(path, made, told) for path, made in blank.items()}
    whole = whole.model_copy(update={"residual": residual + len(told)})
    plan = await _with_unshown(verifier, await _with_first_run(verifier, whole, blank, delivered, again, run), run)
    left = set(_told(verifier, plan))
    alone = tuple(name for name in plan.alone if name not in left)
    beside = tuple(name for name in plan.ids.values() if name in plan.beside or name in left)
    return plan.model_copy(update={"alone": alone, "beside": beside})


def _showing(path: str, made: Rewritten, told: Collection[Place]) -> Rewritten:
    return dataclasses.replace(made, shows=made.shows | {names for where, names in told if where == path})


def _told(verifier: SuiteVerifier, plan: Plan) -> tuple[str, ...]:
    """Delivered tests whose expectation stands in a data file that they are run with; of a plan with a first run those that
    are judged in it."""
    gone = plan.hidden if plan.blank else plan.unshown
    files = {
        path: text for path, text in verifier.test_files.items()
        if path not in plan.files and path not in gone and not path.endswith(".py")
    }  # fmt: skip
    return telling(plan, files, plan.alone if plan.blank else tuple(plan.ids.values())) if files else ()


async def _with_first_run(
    verifier: SuiteVerifier, plan: Plan, blank: Mapping[str, Rewritten], delivered: Mapping[str, Rewritten],
    recorded: Sequence[Mapping[str, Sequence[Hit]]], run: RunTrial,
) -> Plan:  # fmt: skip
    """The plan with what its first run delivers and judges. `recorded`: what the oracle's work reported before."""

    async def run_form(files: Mapping[str, str], without: Collection[str]) -> TestRun:
        return await run(Trial(files, plan.preload, on_disk=plan.on_disk, without=frozenset(without)))

    real = await run_form(plan.files, ())
    kept, names = {site.number: site for site in plan.sites}, tuple(plan.ids.values())
    first = await find_first_run(
        blank, delivered, verifier.test_files, names, kept, plan.expected, real, run_form
    )  # fmt: skip
    unsteady = {}
    for name in names:
        runs = [first.run.observed.get(name, ()), real.observed.get(name, ()), *(each[name] for each in recorded)]
        told = [noted_values(hits, kept) for hits in runs if hits]
        if differing := tuple(sorted(number for number in kept if len({repr(r.get(number)) for r in told}) > 1)):
            unsteady[name] = differing
    return plan.model_copy(
        update={
            "blank": first.blank, "hidden": first.hidden, "alone": first.alone, "beside": first.beside,
            "notes": first.notes, "unsteady": unsteady,
        }
    )  # fmt: skip


async def _with_unshown(verifier: SuiteVerifier, plan: Plan, run: RunTrial) -> Plan:
    """The plan with the data files that the delivered tests, or those of the first run, do not need: work would find there what
    the assertions withhold."""
    data = sorted(path for path in verifier.test_files if path not in plan.files and not path.endswith(".py"))
    if not plan.sites or not data:
        return plan

    async def holds(files: Mapping[str, str], without: Sequence[str], names: Collection[str]) -> bool:
        ran = await run(Trial(files, plan.preload, on_disk=plan.on_disk, without=frozenset(without)))
        ran = judged(plan, {name: name for name in names}, ran)
        return ran.finished and all(ran.status(name) == "passed" for name in names)

    unshown = await spare(data, lambda without: holds(plan.files, without, plan.ids.values()))
    if not plan.alone:
        return plan.model_copy(update={"unshown": unshown})
    hidden = await spare(data, lambda without: holds(plan.blank, [*plan.hidden, *without], plan.alone))
    return plan.model_copy(update={"unshown": unshown, "hidden": (*plan.hidden, *hidden)})


async def spare(data: Sequence[str], holds: Callable[[Sequence[str]], Awaitable[bool]]) -> tuple[str, ...]:
    """Those of some files without which the tests hold, by halves."""
    found: list[str] = []
    waiting, runs = [list(data)], 0
    while waiting and runs < MAX_SPARED:
        part = waiting.pop()
        runs += 1
        if await holds([*found, *part]):
            found += part
        elif len(part) > 1:
            waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
    return tuple(found)


def telling(plan: Plan, files: Mapping[str, str], names: Collection[str]) -> tuple[str, ...]:
    """Delivered tests of `names` that expect what stands in one of these data files."""
    said = "\n".join(files.values())
    return tuple(
        name for name in names if any(text in said for one in plan.expected.get(name, ()) for text in _texts_of(one))
    )


def _texts_of(expected: Expected) -> Iterator[str]:
    """Texts and numbers in withheld values that are long enough to mean something where they are found."""
    waiting = [content for value in expected.values.values() for content in _contents(value)]
    while waiting:
        part = waiting.pop()
        match part:
            case str() if len(part) >= MIN_TOLD:
                yield part
            case int() | float() if not isinstance(part, bool) and len(str(part)) >= MIN_TOLD:
                yield str(part)
            case dict():
                waiting += [*part.keys(), *part.values()]
            case list() | tuple() | set() | frozenset():
                waiting += part


def _contents(value: Any) -> Iterator[Any]:
    try:
        yield decode(value).content
    except Unreadable:
        return


def observed_verifier(verifier: SuiteVerifier, plan: Plan) -> SuiteVerifier:
    """The verifier as the sandbox gets to see it: delivered test modules, and ids without values."""
    return verifier.model_copy(
        update={
            "test_files": {**verifier.test_files, **plan.files},
            "fail_to_pass": tuple(plan.ids[test_id] for test_id in verifier.fail_to_pass),
            "pass_to_pass": tuple(plan.ids[test_id] for test_id in verifier.pass_to_pass),
        }
    )


def judged(plan: Plan, ran_as: Mapping[str, str], run: TestRun) -> TestRun:
    """`run` with each delivered test failed that passed inside and reported something else than it must."""
    sites = {site.number: site for site in plan.sites}
    cases = dict(run.cases)
    for name, other in ran_as.items():
        case = cases.get(other)
        if case is not None and case.status == "passed":
            why = judge_test(sites, plan.expected.get(name, ()), run.observed.get(other, ()))
            if why:
                cases[other] = Case("failed", why, case.seconds)
    return dataclasses.replace(run, cases=cases)


@dataclass(frozen=True, slots=True)
class Bare:
    """A run of the tests without their expectations, among canaries."""

    run: TestRun
    ran_as: Mapping[str, str]
    """Delivered test id → the id under which it ran there."""
    canaries: Collection[str]
    """Ids under which canaries ran there."""
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Delivered test id → the id under which its second copy ran there (Python)."""
    compiled_in: frozenset[str] = frozenset()
    """Hidden files there that the product was compiled from (Go, Rust)."""


def adapted(plan: Plan, ran_as: Mapping[str, str], bare: Bare, real: TestRun) -> tuple[str, ...]:
    """Delivered tests in which the work computed something else without expectations than beside them, and canaries with
    which it agreed where nothing else told it an expectation."""
    sites = {site.number for site in plan.sites}
    found = []
    for name, numbers in plan.notes.items():
        watched = (sites - set(plan.unsteady.get(name, ()))) | set(numbers)
        runs = ((bare.run, bare.ran_as[name]), (real, ran_as[name]), (bare.run, bare.copies.get(name, "")))
        without, beside, copy = (
            noted_values(run.observed.get(ran, ()), watched, names_of(name, ran)) for run, ran in runs
        )
        if without.keys() != beside.keys() or not all(alike(without, beside, n, copy) for n in without):
            found.append(name)
    return (*found, *sorted(name for name in bare.canaries if bare.run.status(name) == "passed"))


def missed(plan: Plan, ran_as: Mapping[str, str], run: TestRun) -> dict[str, set[int]]:
    """Delivered test id, or that of a part of one (`TestName/case`) → the sites that a run did not meet as it must."""
    sites = {site.number: site for site in plan.sites}
    found: dict[str, set[int]] = {}
    for name, expected in plan.expected.items():
        whole = name
        while whole not in ran_as and "/" in whole:
            whole = whole.rpartition("/")[0]
        if whole not in ran_as:
            continue
        hits = run.observed.get(ran_as[whole] + name[len(whole) :], ())
        for number in {one.site for one in expected}:
            own = [one for one in expected if one.site == number]
            if judge_test(sites, own, [hit for hit in hits if hit.site == number]):
                found.setdefault(name, set()).add(number)
    return found


def imported(sources: Mapping[str, str], files: Mapping[str, str]) -> tuple[str, ...]:
    """Modules that test files import at their top, without the standard library, pytest and other test files."""
    found: dict[str, None] = {}
    own = {path[:-3].replace("/", ".") for path in files if path.endswith(".py")}
    tops = {name.partition(".")[0] for name in own}
    for source in sources.values():
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError):
            continue
        for node in body:
            names: Sequence[str] = ()
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in tops and top not in ("pytest", "_pytest"):
                    found[name] = None
    return tuple(found)


def _rewritten(
    verifier: SuiteVerifier, sources: Mapping[str, str], levels: Mapping[int, int], form: Form
) -> dict[str, Rewritten]:
    made = {}
    places = {path: index for index, path in enumerate(sorted(verifier.test_files))}
    for path, source in sources.items():
        others = {other: text for other, text in verifier.test_files.items() if other != path and other.endswith(".py")}
        first = places[path] * STRIDE
        asked = tuple(sorted((n, level) for n, level in levels.items() if first <= n < first + STRIDE))
        made[path] = _rewritten_file(path, source, asked, form, first, tuple(others.items()))
    return made


@lru_cache(maxsize=128)
def _rewritten_file(
    path: str, source: str, levels: tuple[tuple[int, int], ...], form: Form, first: int, others: tuple[tuple[str, str], ...]
) -> Rewritten:  # fmt: skip
    """Kept, as tasks of one package have the same test files."""
    made = rewrite(path, source, levels=dict(levels), form=form, first=first, others=dict(others))
    return made if form == "record" else dataclasses.replace(made, text=neutral_variables(made.text))


def _not_met(sites: Mapping[int, Site], names: object, run: TestRun) -> set[int]:
    """Sites that the oracle's own work does not meet."""
    found = set()
    for hits in run.observed.values():
        for hit in hits:
            site = sites.get(hit.site)
            if site is not None and judge_hit(site, *_split(site, hit)):
                found.add(hit.site)
    return found


def _split(site: Site, hit: Hit) -> tuple[Expected, Hit]:
    """A recorded hit as what is withheld, and what a grading reports."""
    withheld = {index: in_order(hit.values[index]) for index in site.withheld if index < len(hit.values)}
    values = tuple(hit.values[index] for index in site.observed if index < len(hit.values))
    return Expected(site=site.number, values=withheld), dataclasses.replace(hit, values=values)


def _different(first: Mapping[str, tuple[Expected, ...]], second: Mapping[str, tuple[Expected, ...]]) -> set[int]:
    """Sites whose withheld values, or number of runs, differ between two runs of the same work."""
    found: set[int] = set()
    for name, runs in first.items():
        others = second.get(name, ())
        found |= {one.site for one in runs if one not in others} | {one.site for one in others if one not in runs}
        counts, again = (Counter(one.site for one in each) for each in (runs, others))
        found |= {site for site in counts | again if counts[site] != again[site]}
    return found
