"""What the first of two runs of a JavaScript suite holds, found out with the oracle's work.

It holds tests that show no expectation, what these make use of, and nothing else: no hook, value, helper or data file that
only others need.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from sandbox.grading.adapters.base import TestRun
from sandbox.grading.canaries.base import Language, Place
from sandbox.grading.canaries.javascript import JavaScriptTests
from sandbox.grading.canaries.scanning import mask
from sandbox.grading.observations.brace_tests.braces import Edit, applied
from sandbox.grading.observations.brace_tests.deciding import ASSERTS, SCRIPTS, TestFile
from sandbox.grading.observations.brace_tests.helper_files import pruned
from sandbox.grading.observations.brace_tests.settling import settled
from sandbox.grading.observations.brace_tests.statements import TESTS, Names
from sandbox.grading.observations.literals import shown
from sandbox.grading.observations.plan import Plan, RunTrial, Trial, judged, observed_verifier, spare
from sandbox.grading.observations.reports.judge import judge_test
from sandbox.tasks.spec import SuiteVerifier

ROUNDS = 3
PRAGMAS = (b"@jest", b"@vitest", b"@ts-", b"@jsx")
"""Comments that runners and compilers read."""
LANGUAGE: Language = JavaScriptTests()
Holds = Callable[[Collection[str]], Awaitable[bool]]


async def with_first_run(verifier: SuiteVerifier, plan: Plan, run: RunTrial) -> Plan:
    """The plan with what shows an expectation counted, and what the first run compares and leaves out."""
    suite = _Suite(verifier, plan, run)
    plan = suite.plan = plan.model_copy(update=await suite.told_less())
    texts = suite.texts()
    files = {path: TestFile(path, text.encode(), suite.files()) for path, text in texts.items()}
    residual = sum(len(file.deciding_tests()) + file.deciding_elsewhere() for file in files.values())
    if not residual and (used := await suite.used(files)) is not None:
        return plan.model_copy(update={"files": {**plan.files, **used}})
    plan = suite.plan = plan.model_copy(update={"residual": max(1, residual)})
    reporting = {path: {site.test for site in plan.sites if site.path == path} for path in files}
    watched = {path: reporting[path] & file.comparable() for path, file in files.items()}
    if not any(watched.values()):
        return plan
    best = await suite.compared(files, watched, hooks=False)
    if len(best.notes) < sum(map(len, watched.values())):
        other = await suite.compared(files, watched, hooks=True)
        best = other if len(other.notes) > len(best.notes) else best
    plan = suite.plan = plan.model_copy(update={"notes": dict.fromkeys(best.notes, ()), "hooks": best.hooks})
    plan = suite.plan = plan.model_copy(update={"first_without": await suite.first_without(best)})
    helpers = await suite.pruned(best)
    return plan.model_copy(update={"notes": {}} if helpers is None else {"first": helpers})


@dataclass(frozen=True, slots=True)
class _First:
    texts: Mapping[str, str]
    notes: tuple[str, ...]
    """Ids of tests whose reports are those of the whole suite."""
    hooks: bool


class _Suite:
    def __init__(self, verifier: SuiteVerifier, plan: Plan, run: RunTrial) -> None:
        self.plan, self._verifier, self._run = plan, verifier, run
        self._where = {LANGUAGE.parse(test_id).where for test_id in plan.ids}

    def files(self) -> Mapping[str, str]:
        return observed_verifier(self._verifier, self.plan).test_files

    def texts(self) -> dict[str, str]:
        """The files with expected tests."""
        return {path: text for path, text in self.files().items() if path in self._where}

    def _others(self) -> list[str]:
        return sorted(path for path in self._verifier.test_files if path not in self._where)

    def _trial(self, modules: Mapping[str, str], without: Collection[str] = ()) -> Trial:
        sites = {
            site.number: LANGUAGE.identify(Place(LANGUAGE.where(site.path), site.test, "")) for site in self.plan.sites
        }
        return Trial(modules, (), sites, without=frozenset(without))

    async def _holds(self, modules: Mapping[str, str], without: Collection[str]) -> bool:
        """Whether the whole suite passes with the oracle's work in this form."""
        ran = await self._run(self._trial(modules, without))
        ran = judged(self.plan, {name: name for name in self.plan.ids.values()}, ran)
        return ran.finished and all(ran.status(name) == "passed" for name in self.plan.ids.values())

    async def told_less(self) -> dict[str, object]:
        """The delivered files without comments, and data files that they do not need."""
        files = self.files()
        bare = {path: without_comments(text) for path, text in files.items() if path.endswith(SCRIPTS)}
        changed = {path: text for path, text in bare.items() if text != files[path]}
        others = self._others()
        if not changed and not others:
            return {}
        if await self._holds({**files, **bare}, others):
            return {"files": {**self.plan.files, **changed}, "unshown": tuple(others)}
        if changed and not await self._holds({**files, **bare}, ()):
            bare, changed = {}, {}
        kept = {**files, **bare}
        unshown = await spare(others, lambda without: self._holds(kept, without))
        return {"files": {**self.plan.files, **changed}, "unshown": unshown}

    async def used(self, files: Mapping[str, TestFile]) -> dict[str, str] | None:
        """Files of a suite that shows nothing by itself, without what none of its tests makes use of. None where what is left
        still shows something."""
        texts = {}
        for path, file in files.items():
            every = file.comparable()
            texts[path] = file.without(every, every, hooks=True).decode()
        helpers = {path: self.files()[path] for path in self._others() if path.endswith(SCRIPTS)}
        texts |= pruned(helpers, list(texts.values()))
        if any(values.unread or values.places for values in shown(texts).values()):
            return None
        texts = {path: text for path, text in texts.items() if text != self.files()[path]}
        return texts if not texts or await self._holds({**self.files(), **texts}, self.plan.unshown) else None

    async def compared(
        self, files: Mapping[str, TestFile], watched: Mapping[str, set[Names]], *, hooks: bool
    ) -> _First:
        """The first run, with those of the tests `watched` whose reports do not change in it."""
        names = {path: set(tests) for path, tests in watched.items()}
        for _ in range(ROUNDS):
            left = settled(files, names, hooks=hooks)
            texts, names = left.texts, {path: set(tests) for path, tests in left.names.items()}
            if not any(names.values()):
                break
            ran = await self._run(self._trial(texts))
            notes = tuple(self._same(names, ran))
            same = {path: {tests for tests in names[path] if self._id(path, tests) in notes} for path in names}
            if same == names or not notes:
                return _First(texts, notes, hooks)
            names = same
        return _First(texts, (), hooks)

    def _id(self, path: str, tests: Names) -> str:
        return LANGUAGE.identify(Place(LANGUAGE.where(path), tests, ""))

    def _same(self, names: Mapping[str, set[Names]], ran: TestRun) -> Iterator[str]:
        sites = {site.number: site for site in self.plan.sites}
        wanted = {self._id(path, each) for path, tests in names.items() for each in tests}
        for test_id in self.plan.ids:
            expected = self.plan.expected.get(test_id)
            if test_id in wanted and expected and not judge_test(sites, expected, ran.observed.get(test_id, ())):
                yield test_id

    async def _is_same(self, first: _First, without: Collection[str], helpers: Mapping[str, str]) -> bool:
        ran = await self._run(self._trial({**first.texts, **helpers}, without))
        names = {path: {site.test for site in self.plan.sites if site.path == path} for path in first.texts}
        return set(first.notes) <= set(self._same(names, ran))

    async def pruned(self, first: _First) -> dict[str, str] | None:
        """Helper files with what the first run needs of them alone; None where it needs more."""
        files = self.files()
        helpers = {path: files[path] for path in self._others() if path not in self.plan.first_without}
        made = pruned({path: text for path, text in helpers.items() if path.endswith(SCRIPTS)}, first.texts.values())
        made = {path: text for path, text in made.items() if text != files[path]}
        if not made:
            return {}
        return made if await self._is_same(first, self.plan.first_without, made) else None

    async def first_without(self, first: _First) -> tuple[str, ...]:
        """Files that the first run does not need."""

        async def holds(without: Collection[str]) -> bool:
            return await self._is_same(first, (*self.plan.unshown, *without), {})

        others = [path for path in self._others() if path not in self.plan.unshown]
        if not others:
            return self.plan.unshown
        found = tuple(others) if await holds(others) else await spare(others, holds)
        return (*self.plan.unshown, *found)


def without_comments(text: str) -> str:
    """`text` without comments, its lines where they were."""
    source = text.encode()
    edits = [
        Edit(*token.span(), "\n" * token[0].count(b"\n") or " ")
        for token in TESTS.syntax.tokens.finditer(source)
        if token["comment"] is not None and not any(mark in token[0] for mark in PRAGMAS)
    ]
    return applied(source, edits).decode()


def is_alone(block: bytes) -> bool:
    """Whether a test decides once, by one literal: with another one there it shows nothing that is right."""
    code = mask(block, TESTS.syntax).code
    first = ASSERTS.search(code)
    rest = b"" if first is None else re.split(rb"[;\n]", code[first.start() :], maxsplit=1)[-1]
    return first is not None and ASSERTS.search(rest) is None and len(TESTS.values(block)) == 1
