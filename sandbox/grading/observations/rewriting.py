"""The observed form of JavaScript, Go and Rust suites; a run of the oracle's work selects the assertions that report."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from sandbox.grading.adapters.base import Case, Hit, TestRun
from sandbox.grading.canaries.base import Place
from sandbox.grading.observations.brace_tests.braces import Rewriter, Rewritten, rewrite
from sandbox.grading.observations.brace_tests.items import Itemised
from sandbox.grading.observations.brace_tests.javascript import JavaScriptRewriter
from sandbox.grading.observations.hiding import Names, deciding_tests, only_tests
from sandbox.grading.observations.js_first_run import with_first_run
from sandbox.grading.observations.plan import Plan, RunTrial, Trial, observed_verifier, spare
from sandbox.grading.observations.reports.base import Expected, Site
from sandbox.grading.observations.reports.judge import judge_hit, judge_test
from sandbox.grading.observations.trimming import trimmed, without_block, without_remarks_of
from sandbox.tasks.spec import SuiteVerifier

ROUNDS = 5
SETTINGS = ("go.mod", "go.sum", "go.work", "Cargo.toml", "Cargo.lock")
STRIDE = 10_000
"""Numbers of sites of one file; those of the next begin one further."""
MAX_PARTS = 100
"""Levels of parts inside parts (`TestName/case/case`) that are looked at."""


async def make_brace_plan(rewriter: Rewriter, verifier: SuiteVerifier, run: RunTrial) -> Plan | None:
    """The plan of a task's tests, from runs of the oracle's work; None when no assertion holds in observed form.

    Raises what `run` raises.
    """
    dropped: set[int] = set()
    remarks = without_remarks_of(rewriter, verifier)
    verifier = verifier.model_copy(update={"test_files": {**verifier.test_files, **remarks}})
    for _ in range(ROUNDS):
        recording = _rewritten(rewriter, verifier, dropped, record=True)
        sites = {site.number: site for made in recording.values() for site in made.sites}
        if not sites:
            return None
        ran = await run(_trial(rewriter, verifier, recording))
        worse = _not_met(sites, ran) | _unsound(rewriter, verifier, recording, ran)
        if not worse:
            expected = _recorded(sites, ran)
            delivered = _rewritten(rewriter, verifier, dropped, record=False)
            again = await run(_trial(rewriter, verifier, delivered))
            worse = _differing(sites, expected, again) | _unsound(rewriter, verifier, delivered, again)
            if not worse:
                plan = Plan(
                    files={**remarks, **{path: made.text for path, made in delivered.items()}},
                    ids={test_id: test_id for test_id in _wanted(verifier)},
                    sites=tuple(sites.values()),
                    expected=expected,
                    compiled_in=tuple(sorted(again.compiled_in & verifier.test_files.keys())),
                )
                return await _with_notes(rewriter, verifier, plan, run)
        dropped |= worse
    return None


async def _with_notes(rewriter: Rewriter, verifier: SuiteVerifier, plan: Plan, run: RunTrial) -> Plan:
    """The plan with the tests whose reports are compared with those of a run in which no other test decides anything.

    None where every test only reports: then nothing is shown that work could adapt to. Nor those whose reports the oracle's
    work makes otherwise when they run alone.
    """
    if isinstance(rewriter, JavaScriptRewriter):
        return await with_first_run(verifier, plan, run)
    language = rewriter.language
    wheres = {language.parse(test_id).where for test_id in plan.ids}
    texts = {
        path: text
        for path, text in observed_verifier(verifier, plan).test_files.items()
        if (rewriter.scope(path) is not None if isinstance(rewriter, Itemised) else language.where(path) in wheres)
    }
    if isinstance(rewriter, Itemised):
        plan = await _trimmed(rewriter, plan, texts, run)
        texts = {path: plan.files.get(path, text) for path, text in texts.items()}
    decide = deciding_tests(rewriter, texts)
    watched = {path: {site.test for site in plan.sites if site.path == path} - decide[path] for path in texts}
    residual = plan.residual + sum(map(len, decide.values()))
    plan = plan.model_copy(update={"residual": residual})
    whole = Trial(plan.files, (), site_ids(rewriter, plan.sites))
    if not residual:
        return plan.model_copy(update={"unshown": await _unneeded(rewriter, verifier, plan, whole, plan.ids, run)})
    if not any(watched.values()):
        return plan
    alone, watched = apart(rewriter, texts, watched)
    if not any(watched.values()):
        return plan
    first = dataclasses.replace(whole, modules={**plan.files, **alone})
    places = {(language.where(path), names) for path, tests in watched.items() for names in tests}
    asked = [
        test_id
        for test_id, place in ((test_id, language.parse(test_id)) for test_id in plan.ids)
        if (place.where, place.names) in places and plan.expected.get(test_id)
    ]
    without = await _unneeded(rewriter, verifier, plan, first, asked, run)
    ran = await run(dataclasses.replace(first, without=frozenset(without)))
    sites = {site.number: site for site in plan.sites}
    notes = {
        test_id: () for test_id in asked if not judge_test(sites, plan.expected[test_id], ran.observed.get(test_id, ()))
    }
    return plan.model_copy(update={"notes": notes, "first_without": without})


def apart(
    rewriter: Rewriter, texts: Mapping[str, str], watched: Mapping[str, set[Names]]
) -> tuple[dict[str, str], dict[str, set[Names]]]:
    """Files with those of some tests alone that show nothing there: what only other tests gave to the product may be what these
    expect."""
    left = {path: set(names) for path, names in watched.items()}
    while True:
        files = {path: text.encode() for path, text in texts.items()}
        alone = {path: text.decode() for path, text in only_tests(rewriter, files, left).items()}
        decide = deciding_tests(rewriter, alone)
        if all(names.isdisjoint(decide[path]) for path, names in left.items()):
            return alone, left
        left = {path: names - decide[path] for path, names in left.items()}


async def _trimmed(rewriter: Itemised, plan: Plan, texts: dict[str, str], run: RunTrial) -> Plan:
    """The plan with files that hold nothing but what its tests need, if the oracle's work then does the same. Where it does
    not, or the tests are not all found, somebody decides that nothing is known about."""
    language = rewriter.language
    places = list(map(language.parse, plan.ids))
    expected = {path: {p.names for p in places if p.where == language.where(path)} for path in texts}
    if without_block(rewriter, texts, expected):
        return plan.model_copy(update={"residual": 1})
    made = {path: text for path, text in trimmed(rewriter, texts, expected).items() if text != texts[path]}
    if not made:
        return plan
    smaller = plan.model_copy(update={"files": {**plan.files, **made}})
    ran = await run(Trial(smaller.files, (), site_ids(rewriter, plan.sites)))
    sites = {site.number: site for site in plan.sites}
    holds = ran.finished and not any(
        ran.status(name) != "passed" or judge_test(sites, plan.expected.get(name, ()), ran.observed.get(name, ()))
        for name in plan.ids
    )
    return smaller if holds else plan.model_copy(update={"residual": 1})


async def _unneeded(
    rewriter: Rewriter, verifier: SuiteVerifier, plan: Plan, trial: Trial, asked: Collection[str], run: RunTrial
) -> tuple[str, ...]:
    """Data files, and packages beside the tests, without which these tests still report what they must: work would find there
    what is withheld."""
    if not isinstance(rewriter, Itemised):
        return ()
    data = [p for p in sorted(verifier.test_files) if rewriter.scope(p) is None and not p.endswith(SETTINGS)]
    if not data:
        return ()
    sites = {site.number: site for site in plan.sites}

    async def holds(without: Sequence[str]) -> bool:
        ran = await run(dataclasses.replace(trial, without=frozenset(without)))
        return ran.finished and not any(
            judge_test(sites, plan.expected.get(name, ()), ran.observed.get(name, ())) for name in asked
        )

    return await spare(data, holds)


def site_ids(rewriter: Rewriter, sites: Iterable[Site]) -> dict[int, str]:
    """Site → id of the test that it is in, as delivered."""
    language = rewriter.language
    return {site.number: language.identify(Place(language.where(site.path), site.test, "")) for site in sites}


def judged_below(plan: Plan, ran_as: Mapping[str, str], run: TestRun) -> TestRun:
    """`run` with tests failed for what their parts (`TestName/case`) reported, where the parts have no verdict of their own."""
    sites = {site.number: site for site in plan.sites}
    cases = dict(run.cases)
    for name, runs in plan.expected.items():
        if name in ran_as:
            continue
        parent = name
        while "/" in parent and parent not in ran_as:
            parent = parent.rpartition("/")[0]
        other = ran_as.get(parent)
        case = None if other is None else cases.get(other)
        if other is not None and case is not None and case.status == "passed":
            reported = run.observed.get(other + name[len(parent) :], ())
            if why := judge_test(sites, runs, reported):
                cases[other] = Case("failed", why, case.seconds)
    failing = [name for name, case in cases.items() if case.status == "failed"]
    for name in failing:
        for _ in range(min(MAX_PARTS, name.count("/"))):  # each step copies the name, which the work may have made up
            name = name.rpartition("/")[0]
            if name in cases and cases[name].status == "passed":
                cases[name] = Case("failed", "a part of it failed", cases[name].seconds)
    return dataclasses.replace(run, cases=cases)


def _wanted(verifier: SuiteVerifier) -> tuple[str, ...]:
    return (*verifier.fail_to_pass, *verifier.pass_to_pass)


def _rewritten(rewriter: Rewriter, verifier: SuiteVerifier, dropped: set[int], *, record: bool) -> dict[str, Rewritten]:
    language = rewriter.language
    places = list(map(language.parse, _wanted(verifier)))
    made: dict[str, Rewritten] = {}
    for index, (path, text) in enumerate(sorted(verifier.test_files.items())):
        tests = {place.names for place in places if place.where == language.where(path)}
        if tests:
            made[path] = rewrite(
                rewriter, path, text, tests=tests, dropped=dropped, record=record, first=index * STRIDE
            )
    return {path: one for path, one in made.items() if one.sites}


def _trial(rewriter: Rewriter, verifier: SuiteVerifier, made: Mapping[str, Rewritten]) -> Trial:
    sites = site_ids(rewriter, (site for one in made.values() for site in one.sites))
    return Trial({path: one.text for path, one in made.items()}, (), sites)


def _not_met(sites: Mapping[int, Site], run: TestRun) -> set[int]:
    """Sites that the oracle's own work does not meet, or that are never reached."""
    hits = [hit for each in run.observed.values() for hit in each]
    bad = {hit.site for hit in hits if hit.site in sites and judge_hit(sites[hit.site], *_split(sites[hit.site], hit))}
    return bad | (sites.keys() - {hit.site for hit in hits}) if run.observed else set()


def _unsound(rewriter: Rewriter, verifier: SuiteVerifier, made: Mapping[str, Rewritten], run: TestRun) -> set[int]:
    """Sites to leave as they were, because their tests do not pass with them: those that a compiler names, or all."""
    failing = [test_id for test_id in _wanted(verifier) if run.status(test_id) != "passed"]
    if run.finished and not failing:
        return set()
    everything = {site.number for one in made.values() for site in one.sites}
    said = "\n".join([run.ending, *run.file_errors.values()])
    named: set[int] = set()
    for path, one in made.items():
        lines = {int(line) for line in re.findall(rf"{re.escape(PurePosixPath(path).name)}:(\d{{1,6}})\b", said)}
        named |= {number for number, line in one.lines.items() if line in lines}
    if named:
        return named
    ids = site_ids(rewriter, (site for one in made.values() for site in one.sites))
    own = {
        number
        for number, test_id in ids.items()
        if any(bad == test_id or bad.startswith((f"{test_id}/", f"{test_id}[")) for bad in failing)
    }
    return own if own and run.finished else everything


def _split(site: Site, hit: Hit) -> tuple[Expected, Hit]:
    """A recorded hit as what is withheld, and what a grading reports."""
    withheld = {index: hit.values[index] for index in site.withheld if index < len(hit.values)}
    values = tuple(hit.values[index] for index in site.observed if index < len(hit.values))
    return Expected(site=site.number, values=withheld), Hit(site.number, values, hit.raised)


def _recorded(sites: Mapping[int, Site], run: TestRun) -> dict[str, tuple[Expected, ...]]:
    return {
        test_id: tuple(_split(sites[hit.site], hit)[0] for hit in hits if hit.site in sites)
        for test_id, hits in run.observed.items()
    }


def _differing(sites: Mapping[int, Site], expected: Mapping[str, Sequence[Expected]], run: TestRun) -> set[int]:
    """Sites of tests that report something else the second time."""
    return {
        one.site
        for test_id, ones in expected.items()
        if judge_test(sites, ones, run.observed.get(test_id, ()))
        for one in ones
    }
