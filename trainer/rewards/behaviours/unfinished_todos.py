"""To-do items that were created and left unfinished: a published product penalty of Composer 2."""

from __future__ import annotations

from trainer.config import RewardConfig
from trainer.rewards.parts.base import reward_part
from trainer.types import RewardPart, Trajectory


@reward_part("unfinished_todos")
def unfinished_todos(trajectory: Trajectory, config: RewardConfig) -> RewardPart | None:
    """Minus the share of the last accepted list that is not done; 0 without a list."""
    weight = config.behaviour.unfinished_todos
    if weight == 0.0:
        return None
    items: list[object] = []
    for turn in trajectory.turns:
        failed = {result.call_id for result in turn.results if result.error is not None}
        for call in turn.calls:
            if call.name == "todo_write" and call.id not in failed:
                items = list(call.arguments.get("todos", ()))
    left = sum(not (isinstance(item, dict) and item.get("status") == "done") for item in items)
    value = -left / len(items) if items else 0.0
    return RewardPart(name="unfinished_todos", value=value, weight=weight, detail={"left": left, "items": len(items)})
