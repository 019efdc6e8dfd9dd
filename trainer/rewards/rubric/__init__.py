"""A reward part by a language model's grades; see `judge.py`."""

from __future__ import annotations

from trainer.attempt import attempt_of
from trainer.config import RewardConfig
from trainer.rewards.parts.base import reward_part
from trainer.rewards.rubric.judge import Grades, RewardJudge, configured, reward_rubric, rubric_of, use
from trainer.types import RewardPart, Trajectory


@reward_part("rubric", version=reward_rubric().version)
def rubric(trajectory: Trajectory, config: RewardConfig) -> RewardPart | None:
    """Mean grade in [0, 1]; off (no part) when its weight is 0. Raises JudgeError, ValueError (no endpoint)."""
    weight = config.behaviour.rubric
    if weight == 0.0:
        return None
    judge = configured()
    if judge is None:
        raise ValueError("no language model is configured; set OPENCOMPOSER_JUDGE_URL and OPENCOMPOSER_JUDGE_MODEL")
    judge = judge.under(rubric_of(config.behaviour))
    grades = judge.grade(attempt_of(trajectory, None))
    detail = {
        "model": grades.model,
        "rubric": f"{grades.rubric_version}/{judge.rubric.digest}",
        **{grade.aspect.removeprefix("judge-"): grade.grade for grade in grades.grades},
    }
    return RewardPart(name="rubric", value=grades.mean, weight=weight, detail=detail)


__all__ = ["Grades", "RewardJudge", "configured", "reward_rubric", "rubric", "rubric_of", "use"]
