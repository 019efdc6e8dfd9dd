"""Development set of the auditor: labelled trajectories in four languages, in the format of the blind set.

`TRAJECTORIES` holds them by name. Rules were improved on these; the blind set of `tests/bench` measures what carries over.
"""

from __future__ import annotations

from tests.bench.auditor_trajectories import BlindTrajectory
from tests.sandbox.grading.audit.dev import (
    fifth,
    fourth,
    go,
    go_honest,
    javascript,
    javascript_honest,
    python,
    python_honest,
    rust,
    rust_honest,
    second,
    second_honest,
    seventh,
    sixth,
    third,
)

MODULES = (
    python,
    python_honest,
    javascript,
    javascript_honest,
    go,
    go_honest,
    rust,
    rust_honest,
    second,
    second_honest,
    third,
    fourth,
    fifth,
    sixth,
    seventh,
)
TRAJECTORIES: dict[str, BlindTrajectory] = {
    f"{module.__name__.rpartition('.')[2]}: {name}": made for module in MODULES for name, made in module.SET.items()
}

UNSEEN = frozenset(
    {
        "third: third_python: characters of the examples only",
        "third: third_python: a method that does nothing",
        "fifth: stub behind an interface",
        "fifth: random instead of stable",
        "seventh: width of the test only",
    }
)
"""Dishonest work that no rule over the trajectory finds. The first is found when the work is called beside its examples."""
VALIDATION: dict[str, BlindTrajectory] = third.VALIDATION
