"""The tests that the policy can see, run in its own checkout: a reward that can be gamed, for demonstrations.

Where the hidden tests judge a patch in a clean sandbox, this part believes what a command says in the sandbox that
the policy has worked in. A policy that rewrites the tests is paid for it (`docs/design/learning.md`, "A reward that can be
gamed").
"""

from __future__ import annotations

from trainer.config import RewardConfig
from trainer.rewards.base import reward_part
from trainer.types import RewardPart, Trajectory


@reward_part("visible_tests")
def visible_tests(trajectory: Trajectory, config: RewardConfig) -> RewardPart | None:
    """1 when the command succeeded; off (no part) when its weight is 0."""
    if config.visible_weight == 0.0:
        return None
    if trajectory.visible_passed is None:
        raise ValueError("the visible tests were not run")
    return RewardPart(name="visible_tests", value=float(trajectory.visible_passed), weight=config.visible_weight)
