"""Upper bounds on the duration of legal work on a group: lower limits for deadlines.

Each part of an attempt has its own bound; a group's deadline is their sum over all attempts. It ends only groups that
hang where no other deadline applies.
"""

from __future__ import annotations

import math

from sandbox.grading.audit.judge.client import TIMEOUT
from sandbox.grading.grader import LOSSES, NET_SECONDS, grading_limits, pool_limits
from sandbox.tasks.spec import TaskSpec
from trainer.config import RLConfig
from trainer.rollouts.ending import GRADINGS, REWARD_PAUSES


def grading_seconds(task: TaskSpec) -> float:
    """Maximum seconds for grading one patch of `task`: a sandbox for its canaries, those that a patch may lose, and one
    without the patch.
    """
    lives = pool_limits(task).life_seconds + (LOSSES + 1) * grading_limits(task).life_seconds
    return lives + (LOSSES + 2) * NET_SECONDS


def reward_seconds(config: RLConfig) -> float:
    """Maximum seconds for the reward of one rollout: all retries, and a language model's answers where one grades."""
    asked = TIMEOUT if config.reward.behaviour.rubric else 0.0
    return sum(REWARD_PAUSES) + (len(REWARD_PAUSES) + 1) * asked


def group_deadline(config: RLConfig, task: TaskSpec, *, episodes: int, slots: int) -> float:
    """Seconds after which an attempt at a group of `task` is abandoned.

    `episodes` is the process's maximum of concurrent episodes; `slots` is how many of them hold sandboxes. A value of
    `orchestrator.group_seconds` below the turns of one attempt and one grading of this task is raised to these.
    """
    after = GRADINGS * grading_seconds(task) + reward_seconds(config)
    least = config.sampling.turns_seconds + grading_limits(task).life_seconds + NET_SECONDS
    return max(least, config.group_deadline(after_turns=after, waves=math.ceil(episodes / slots)))
