"""Several bugs in one task: each must cause its own failure, so that fixing one is not enough."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence

from sandbox.generators.analysis.targets import Target
from sandbox.generators.building.builder import TaskBuilder, judge
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.generators.building.screening import screen
from sandbox.generators.mutation.mutants import mutants_of
from sandbox.mutation.operators import is_valid


async def combined(
    builder: TaskBuilder, targets: Sequence[Target], rng: random.Random
) -> AsyncIterator[Draft | Rejected]:
    """A draft of the first mutants of `targets` that some tests notice."""
    parts: list[tuple[Draft, frozenset[str]]] = []
    for target in targets:
        found: tuple[Draft, frozenset[str]] | None = None
        drafts = [draft for draft in mutants_of(builder, target, rng) if isinstance(draft, Draft)]
        for draft, run in zip(drafts, await screen(builder, drafts), strict=True):
            judged = judge(run, draft.expected)
            if not isinstance(judged, Rejected):
                found = draft, frozenset(judged[0])
                break
        if found is None:
            yield Rejected(Reason.UNNOTICED, target.name)
            return
        parts.append(found)
    yield join(parts)


def join(parts: Sequence[tuple[Draft, frozenset[str]]]) -> Draft | Rejected:
    """Several drafts, each with the tests that it fails alone, as one."""
    own = []
    for at, (_, failing) in enumerate(parts):
        others = frozenset().union(*(tests for other, (_, tests) in enumerate(parts) if other != at))
        if not failing - others:
            return Rejected(Reason.NOT_ALL_NEEDED)
        own.append(tuple(sorted(failing - others)))
    broken: dict[str, str] = {}
    gold: dict[str, str] = {}
    for draft, _ in parts:
        for path, right in draft.gold.items():
            wrong = _merge(right, broken.get(path, right), draft.broken[path])
            if wrong is None:
                return Rejected(Reason.INVALID, f"the bugs of {path} touch each other")
            broken[path], gold[path] = wrong, right
    return Draft(
        source="combination", category="debug", operator="+".join(draft.operator for draft, _ in parts),
        broken=broken, gold=gold, expected=tuple(sorted({t for draft, _ in parts for t in draft.expected})),
        family="+".join(draft.family for draft, _ in parts), groups=tuple(own),
        functions=tuple(name for draft, _ in parts for name in draft.functions),
    )  # fmt: skip


def _merge(right: str, one: str, other: str) -> str | None:
    """Both changes of `right`; None where they overlap or come to nothing."""
    if one == right:
        return other
    head, tail = _common(right, other)
    start, end = _common(right, one)
    if len(right) - tail <= start:
        new = other[: len(other) - tail] + right[len(right) - tail : start] + one[start:]
    elif len(right) - end <= head:
        new = one[: len(one) - end] + right[len(right) - end : head] + other[head:]
    else:
        return None
    return new if is_valid(right.encode(), new.encode()) else None


def _common(left: str, right: str) -> tuple[int, int]:
    """Lengths of the longest common head and, of what remains, tail."""
    shorter = min(len(left), len(right))
    head = next((at for at in range(shorter) if left[at] != right[at]), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if left[-1 - at] != right[-1 - at]), rest)
    return head, tail
