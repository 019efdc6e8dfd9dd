"""The hidden tests: 1 when every expected test passed in the clean grading sandbox, else 0."""

from __future__ import annotations

from sandbox.grading.verdict.report import Verdict
from sandbox.harness.types import StopReason
from trainer.config import RewardConfig
from trainer.rewards.parts.base import reward_part
from trainer.types import RewardPart, Trajectory

ENDED_BY_POLICY = frozenset({StopReason.FINISHED, StopReason.NO_TOOL_CALL})


@reward_part("tests")
def tests(trajectory: Trajectory, config: RewardConfig) -> RewardPart:
    """With `require_finish` a passing patch counts only if the policy itself ended the episode.

    Otherwise a policy that repairs the code and then rambles into a limit would be paid for the rambling.
    """
    passed = trajectory.verdict is Verdict.PASSED
    finished = trajectory.stop_reason in ENDED_BY_POLICY
    counts = passed and (finished or not config.require_finish)
    detail = {"unfinished": True} if passed and not counts else {}
    return RewardPart(name="tests", value=float(counts), weight=config.tests_weight, detail=detail)
