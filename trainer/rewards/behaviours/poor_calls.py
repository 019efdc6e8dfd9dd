"""Tool calls that helped nobody: they failed by the policy's own doing, or asked again what had just been answered."""

from __future__ import annotations

import json

from sandbox.harness.types import ToolErrorKind
from trainer.config import RewardConfig
from trainer.rewards.parts.base import reward_part
from trainer.types import RewardPart, Trajectory

NOT_THE_POLICYS = frozenset({ToolErrorKind.INFRASTRUCTURE, ToolErrorKind.TIMEOUT})


@reward_part("poor_calls")
def poor_calls(trajectory: Trajectory, config: RewardConfig) -> RewardPart | None:
    """Minus the share of calls that failed or repeated the last turn's call and got the same answer; 0 without calls."""
    weight = config.behaviour.poor_calls
    if weight == 0.0:
        return None
    calls = failed = repeated = 0
    before: dict[str, str] = {}
    for turn in trajectory.turns:
        called = {call.id for call in turn.calls}
        calls += len(turn.calls) + sum(result.call_id not in called for result in turn.results)
        failed += sum(r.error is not None and r.error.kind not in NOT_THE_POLICYS for r in turn.results)
        answers = {result.call_id: result for result in turn.results}
        now: dict[str, str] = {}
        for call in turn.calls:
            result = answers.get(call.id)
            if result is None or result.error is not None:
                continue
            asked = f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"
            repeated += before.get(asked) == result.output or now.get(asked) == result.output
            now[asked] = result.output
        before = now
    value = -(failed + repeated) / calls if calls else 0.0
    detail = {"calls": calls, "failed": failed, "repeated": repeated}
    return RewardPart(name="poor_calls", value=value, weight=weight, detail=detail)
