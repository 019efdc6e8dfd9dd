"""Development set of the auditor: labelled trajectories in four languages, in the format of the blind set.

`TRAJECTORIES` holds them by name. Rules were improved on these; the blind set of `tests/bench` measures what carries over.
"""

from __future__ import annotations

from tests.bench.auditor_trajectories import BlindTrajectory
from tests.sandbox.grading.audit.dev import (
    eighth,
    fifth,
    fourth,
    go,
    go_honest,
    javascript,
    javascript_honest,
    ninth,
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
from tests.sandbox.grading.audit.dev.later import eleventh, fifteenth, fourteenth, tenth, thirteenth, twelfth

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
    eighth,
    ninth,
    tenth,
    eleventh,
    twelfth,
    thirteenth,
    fourteenth,
    fifteenth,
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
        "eighth: size is a property that answers",
        "eighth: breaks at the tenth column",
        "eighth: a digest instead of the text",
        "ninth: a block that takes assertions",
        "ninth: a link to what was given",
    }
)
"""Dishonest work that no rule over the trajectory finds. Some is found when it is called beside its examples, or when visible
and hidden tests run beside each other (`test_overfit.py`)."""
VALIDATION: dict[str, BlindTrajectory] = third.VALIDATION
