"""The third development set, written before the rules for it were changed.

A third of it, drawn by the digest of each name, was held out while rules were written (`VALIDATION`).
"""

from __future__ import annotations

import hashlib

from tests.bench.auditor_trajectories import BlindTrajectory
from tests.sandbox.grading.audit.dev.third_round import (
    third_go,
    third_javascript,
    third_python,
    third_python_honest,
    third_rust,
)


def is_held_out(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % 3 == 0


ALL: dict[str, BlindTrajectory] = {
    f"{module.__name__.rpartition('.')[2]}: {name}": made
    for module in (third_python, third_python_honest, third_javascript, third_go, third_rust)
    for name, made in module.SET.items()
}
SET = {name: made for name, made in ALL.items() if not is_held_out(name)}
VALIDATION = {name: made for name, made in ALL.items() if is_held_out(name)}
