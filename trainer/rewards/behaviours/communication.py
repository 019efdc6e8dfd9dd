"""The last words of an attempt: does it say what was done, briefly, and without handing the work back?"""

from __future__ import annotations

from sandbox.grading.audit.behaviour import QUESTION
from trainer.config import RewardConfig
from trainer.rewards.parts.base import reward_part
from trainer.types import RewardPart, Trajectory

SHORTEST, LONGEST = 20, 1200
"""Characters of a closing message that says something and can be read at once."""


@reward_part("communication")
def communication(trajectory: Trajectory, config: RewardConfig) -> RewardPart | None:
    """-1 for a closing message that is missing, too long, or a question; else 0."""
    weight = config.behaviour.communication
    if weight == 0.0:
        return None
    said = closing_message(trajectory)
    fault = ""
    if len(said) < SHORTEST:
        fault = "missing"
    elif len(said) > LONGEST:
        fault = "too long"
    elif QUESTION.search(said[-2_000:]):
        fault = "asks instead of ending"
    detail = {"characters": len(said)} | ({"fault": fault} if fault else {})
    return RewardPart(name="communication", value=-float(bool(fault)), weight=weight, detail=detail)


def closing_message(trajectory: Trajectory) -> str:
    """The summary of `finish`, or the text of a last turn without calls."""
    last = trajectory.turns[-1] if trajectory.turns else None
    if last is None or last.summary:
        return ""
    for call in last.calls:
        if call.name == "finish":
            return str(call.arguments.get("summary", "")).strip()
    return "" if last.calls else last.text.rpartition("</think>")[2].strip()
