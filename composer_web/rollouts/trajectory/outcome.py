"""Outcome of a rollout beside its transcript: patch, hidden tests, reward components."""

from __future__ import annotations

from typing import Any

from composer_web.rollouts.trajectory import transcript
from trainer.types import Trajectory

PLACES = {"tests": "report", "length": "tokens"}
"""Reward component → section of the page with its source."""


def outcome(trajectory: Trajectory) -> dict[str, Any]:
    """Context of `rollouts/_patch.html`, `_report.html` and `_reward.html` for a finished rollout."""
    cases = trajectory.report.cases
    failing = [case for case in cases if case.status != "passed"]
    passing = [case for case in cases if case.status == "passed"]
    room = max(0, transcript.MAX_CASES - len(failing))
    return {
        "trajectory": trajectory,
        "patch": transcript.diff_view(trajectory.patch),
        "failing": failing[: transcript.MAX_CASES],
        "passing": passing[:room],
        "cases_cut": max(0, len(cases) - transcript.MAX_CASES),
        "cases_total": len(cases),
        "cases_passed": len(passing),
        "reward_parts": [
            {**p.model_dump(), "adds": p.value * p.weight, "place": PLACES.get(p.name, "")}
            for p in trajectory.reward_parts
        ],
    }
