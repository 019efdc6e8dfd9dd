"""The pool of a task's canaries: siblings that failed on the oracle's work, stored beside the environments.

Making a pool runs the hidden tests a few times with the oracle's patch; the controls of a task do it first, so a
grading finds the pool there. It is bound to the bundle's hash and holds nothing that is ever shown to a policy.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from sandbox.errors import TaskInvalid
from sandbox.grading.adapters.base import TestRun
from sandbox.grading.canaries.base import Language, SiblingTest, Value
from sandbox.grading.canaries.insertion import PreparedSuite, Renaming, blocks_by_name, insert_canaries
from sandbox.grading.observations.plan import Plan
from sandbox.tasks.files import replace_file
from sandbox.tasks.spec import SuiteVerifier

FORMAT = 10
"""Changed whenever a pool made before could not be used any more."""
MAX_FUNCTIONS = 12
PLACES = 3
"""Literals tried of one test."""
VALUES = 2
"""Other values tried of one literal: a cluster of a test and two siblings shows less which one is real."""
LEVELS = (Renaming(files=True, names=True), Renaming(files=False, names=True), Renaming(files=False, names=False))

Trial = Callable[[PreparedSuite, bool], Awaitable[TestRun]]
"""Run prepared files with the oracle's work; the flag asks for everything in them instead of the known ids."""


class OracleFails(TaskInvalid):
    """The oracle's own work does not pass the hidden tests, or not every time."""


class CanaryPool(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    format: int = FORMAT
    bundle_hash: str
    files: bool = False
    names: bool = False
    """What may be renamed so that the tests still pass."""
    siblings: tuple[SiblingTest, ...] = Field(default=(), validation_alias=AliasChoices("siblings", "twins"))
    """Pools of release 0.1 say `twins`."""
    note: str = ""
    """Why there are none, for people."""
    plan: Plan | None = None
    """The observed form of Python tests; the siblings are then of the delivered files."""
    entropy: float | None = None
    """Bits that work would have to guess (`entropy.py`); None where nobody measured them."""
    unguarded: tuple[str, ...] = ()
    """Tests that must start to pass, ask for nothing themselves (`unasked`), and have no sibling here."""
    oracle_runs: int = 0
    """Runs in fresh sandboxes, while this was made, in which the oracle's work passed all hidden tests."""

    @property
    def renaming(self) -> Renaming:
        return Renaming(files=self.files, names=self.names)


class PoolStore:
    """`<root>/canaries/<ab>/<bundle hash>.json`."""

    def __init__(self, root: Path) -> None:
        self._root = root / "canaries"

    def load(self, bundle_hash: str) -> CanaryPool | None:
        try:
            pool = CanaryPool.model_validate_json(self._path(bundle_hash).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None  # made again: a pool follows from the bundle
        return pool if pool.format == FORMAT and pool.bundle_hash == bundle_hash else None

    def save(self, pool: CanaryPool) -> None:
        replace_file(self._path(pool.bundle_hash), pool.model_dump_json())

    def _path(self, bundle_hash: str) -> Path:
        return self._root / bundle_hash[:2] / f"{bundle_hash}.json"


async def make_pool(
    language: Language, verifier: SuiteVerifier, bundle_hash: str, trial: Trial, *, draw: random.Random,
    more: Sequence[SiblingTest] = (), unasked: Collection[str] = (),
) -> CanaryPool:  # fmt: skip
    """Try siblings of the expected tests with the oracle's work, twice, under the strongest renaming that holds.

    `more` are candidates besides those of literals. `unasked` are ids of tests that nothing else guards. Raises OracleFails, and
    SandboxError from `trial`.
    """
    expected = (*verifier.fail_to_pass, *verifier.pass_to_pass)

    async def attempt(
        siblings: Sequence[SiblingTest], renaming: Renaming, everything: bool
    ) -> tuple[PreparedSuite, TestRun]:
        prepared = insert_canaries(language, verifier.test_files, expected, siblings, renaming=renaming, draw=draw)
        return prepared, await trial(prepared, everything)

    candidates = [*candidate_siblings(language, verifier, draw, unasked), *more]
    renaming, (prepared, run) = LEVELS[0], await attempt(candidates, LEVELS[0], True)
    if not _all_pass(prepared, run):
        plain, ran = await attempt((), LEVELS[-1], False)
        if not _all_pass(plain, ran):
            raise OracleFails(_account(plain, ran), remedy="Correct the oracle or the hidden tests")
        renaming, (prepared, run) = LEVELS[-1], await attempt(candidates, LEVELS[-1], True)
        if _all_pass(prepared, run):  # the siblings hold, and only the strongest renaming does not
            other = await attempt(candidates, LEVELS[1], True)
            if _all_pass(*other):
                renaming, (prepared, run) = LEVELS[1], other
        else:
            candidates = await _that_load(candidates, attempt)
            for renaming in LEVELS:
                prepared, run = await attempt(candidates, renaming, True)
                if _all_pass(prepared, run):
                    break
    siblings = _one_place_each([_seen(sibling, head, run) for sibling, head in prepared.siblings])
    again, ran = await attempt(siblings, renaming, False)
    if not _all_pass(again, ran):
        raise OracleFails(_account(again, ran), remedy="Find the tests that do not pass every time")
    kept = tuple(t for t, head in again.siblings if all(ran.status(head + suffix) == "failed" for suffix in t.failing))
    note = "" if kept else "no changed test fails every time for the oracle's work"
    return CanaryPool(
        bundle_hash=bundle_hash, files=renaming.files, names=renaming.names, siblings=kept, note=note,
        oracle_runs=1 + _all_pass(prepared, run),
    )  # fmt: skip


def _account(prepared: PreparedSuite, run: TestRun) -> str:
    bad = [(test_id, run.status(ran_as)) for test_id, ran_as in prepared.ids.items() if run.status(ran_as) != "passed"]
    if not bad:
        return f"the oracle's test run did not come to its end ({run.ending})"
    return f"the oracle does not pass {len(bad)} of {len(prepared.ids)} hidden tests; {bad[0][0]} is {bad[0][1]}"


def without_sibling(language: Language, ids: Collection[str], siblings: Collection[SiblingTest]) -> set[str]:
    """Those of some tests that no sibling stands beside."""
    beside = {(language.where(sibling.path), sibling.names) for sibling in siblings}
    places = {test_id: language.parse(test_id) for test_id in ids}
    return {test_id for test_id, place in places.items() if (place.where, place.names) not in beside}


def candidate_siblings(
    language: Language, verifier: SuiteVerifier, draw: random.Random, unasked: Collection[str] = ()
) -> list[SiblingTest]:
    """Changes of literals of some expected tests, those that must start to pass first, and of these the `unasked`; not tried
    yet."""
    found: list[SiblingTest] = []
    tests = {path: blocks_by_name(language, text.encode()) for path, text in verifier.test_files.items()}
    paths: dict[str, list[str]] = {}
    for path in tests:
        paths.setdefault(language.where(path), []).append(path)
    alone = {(place.where, place.names) for place in map(language.parse, unasked)}
    for ids in (verifier.fail_to_pass, verifier.pass_to_pass):
        places = {(p.where, p.names) for p in map(language.parse, ids)}
        keys = sorted((path, names) for where, names in places for path in paths.get(where, ()) if names in tests[path])
        draw.shuffle(keys)
        keys.sort(key=lambda key: (language.where(key[0]), key[1]) not in alone)
        most = max(MAX_FUNCTIONS // 2, min(MAX_FUNCTIONS, len(alone) if ids is verifier.fail_to_pass else 0))
        for path, names in keys[:most]:
            found.extend(_changes(language, path, names, tests[path][names], draw))
    unique = {(t.path, t.names, t.start, t.text): t for t in found}
    return list(unique.values())


def _changes(
    language: Language, path: str, names: tuple[str, ...], block: bytes, draw: random.Random
) -> list[SiblingTest]:
    values = language.values(block)
    texts = {value: block[value.start : value.end].decode("utf-8", "replace") for value in values}
    ranked = sorted(values, key=lambda value: (-value.weight, draw.random()))
    made: list[SiblingTest] = []
    for value in ranked[:PLACES]:
        others = [text for other, text in texts.items() if other.kind == value.kind and text != texts[value]]
        made.extend(
            SiblingTest(path=path, names=names, start=value.start, end=value.end, text=text)
            for text in _others(language, value, texts[value], others, draw)
        )
    return made


def _others(language: Language, value: Value, text: str, others: Sequence[str], draw: random.Random) -> list[str]:
    drawn = (language.other(value.kind, text, others, draw) for _ in range(4 * VALUES))
    return list(dict.fromkeys(other for other in drawn if other is not None and other != text))[:VALUES]


def _all_pass(prepared: PreparedSuite, run: TestRun) -> bool:
    return run.finished and all(run.status(test_id) == "passed" for test_id in prepared.ids.values())


async def _that_load(
    candidates: Sequence[SiblingTest],
    attempt: Callable[[Sequence[SiblingTest], Renaming, bool], Awaitable[tuple[PreparedSuite, TestRun]]],
) -> list[SiblingTest]:
    """One sibling of each test that can stand in its file at all: with a compiler, one bad sibling spoils the rest."""
    kept: list[SiblingTest] = []
    for sibling in {(t.path, t.names): t for t in candidates}.values():
        if _all_pass(*await attempt([sibling], LEVELS[-1], True)):
            kept.append(sibling)
    return kept


def _seen(sibling: SiblingTest, head: str, run: TestRun) -> SiblingTest:
    """The sibling with what its ids did in `run`."""
    here = {test_id: case for test_id, case in run.cases.items() if _belongs(test_id, head)}
    return sibling.model_copy(
        update={
            "failing": tuple(i.removeprefix(head) for i, case in sorted(here.items()) if case.status == "failed"),
            "passing": tuple(i.removeprefix(head) for i, case in sorted(here.items()) if case.status == "passed"),
            "seconds": round(sum(case.seconds for case in here.values()), 4),
        }
    )


def _belongs(test_id: str, head: str) -> bool:
    return test_id.startswith(head) and test_id[len(head) : len(head) + 1] in ("", "[", "/")


def _one_place_each(siblings: Sequence[SiblingTest]) -> list[SiblingTest]:
    """Mutated siblings of only one literal per test; siblings of two literals would reveal the text that they share."""
    chosen: dict[tuple[str, tuple[str, ...]], list[SiblingTest]] = {}
    for sibling in siblings:
        # A change among the parameters is of one row; if another fails as well, the oracle fails it without a sibling.
        if sibling.failing and (len(sibling.failing) == 1 or not sibling.passing):
            chosen.setdefault((sibling.path, sibling.names), []).append(sibling)
    return [t for group in chosen.values() for t in group if (t.start, t.end) == (group[0].start, group[0].end)]
