"""Small wrong changes of a function.

Of each function the first mutant becomes a task that some tests notice, at most half of them, and whose controls hold in
fresh sandboxes. A mutant that no test notices is equivalent as far as anybody can tell, and dropped.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from sandbox.generators.analysis.targets import Target, functions_in
from sandbox.generators.building.builder import TaskBuilder, tests_elsewhere, tests_near
from sandbox.generators.building.drafts import Draft, Reason, Rejected
from sandbox.mutation.operators import Mutation, Source, is_valid, mutations_of

MAX_TRIES = 6
"""Mutants tried for one function before it is given up."""


def mutants_of(
    builder: TaskBuilder, target: Target, rng: random.Random, *, distant: tuple[str, ...] = ()
) -> Iterator[Draft | Rejected]:
    """Drafts of one function, each another mutation; `distant`: tests of which one must show it (`analysis/reachability.py`)."""
    original = builder.read(target.path)
    tests = (*distant, *(test for test in target.tests if test not in distant))
    expected = tests_near(builder.built, (target.path,), tests)
    if distant:
        # What much of a file rests on fails most tests near it: those of other files say whether the package still stands.
        expected = tuple(sorted({*expected, *tests_elsewhere(builder.built, expected)}))
    for mutation in candidates(original.encode(), target, rng)[:MAX_TRIES]:
        mutated = mutation.apply(original.encode())
        if not is_valid(original.encode(), mutated):
            yield Rejected(Reason.INVALID)
            continue
        yield Draft(
            source="distance" if distant else "mutation", category="debug", operator=mutation.operator,
            broken={target.path: mutated.decode()}, gold={target.path: original}, expected=expected, functions=(target.name,),
            family=f"{builder.built.name}:{target.path}:{target.name}", shown=distant,
        )  # fmt: skip


def candidates(source: bytes, target: Target, rng: random.Random) -> list[Mutation]:
    """Mutations of the target's function, shuffled, with operators taking turns. They may not all mean something."""
    parsed = Source(source)
    node = next(n for name, n in functions_in(parsed.tree) if name == target.name and n.lineno == target.line)
    by_operator: dict[str, list[Mutation]] = {}
    for mutation in mutations_of(parsed, node):
        by_operator.setdefault(mutation.operator, []).append(mutation)
    queues = list(by_operator.values())
    rng.shuffle(queues)
    for queue in queues:
        rng.shuffle(queue)
    turns = max(map(len, queues), default=0)
    return [queue[turn] for turn in range(turns) for queue in queues if turn < len(queue)]
