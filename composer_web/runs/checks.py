"""Settings that only this installation can judge."""

from __future__ import annotations

from composer_web.env import env
from composer_web.ops.errors import UserError
from composer_web.runs.comparing import flat
from trainer.config import FeedbackConfig, RewardConfig, RunConfig


def check_text(field: str, text: str) -> str:
    """The text, which Postgres must be able to store. Raises UserError naming `field`."""
    if "\x00" in text:
        raise UserError(field, f"{field} holds a NUL character; remove it")
    return text


def check_words(config: RunConfig) -> None:
    """The same for every setting that is text."""
    for path, value in flat(config.model_dump(mode="json")).items():
        if isinstance(value, str):
            check_text(path, value)


def check_reward(reward: RewardConfig, field: str) -> None:
    """Language model and parts must be there. Raises UserError naming the setting below `field`."""
    from trainer.rewards import RewardError, part_names
    from trainer.rewards.plugins import refresh

    if reward.behaviour.rubric and not (env().judge_url and env().judge_model):
        raise UserError(
            f"{field}behaviour.rubric",
            "no language model is configured; set OPENCOMPOSER_JUDGE_URL and OPENCOMPOSER_JUDGE_MODEL, or weight 0",
        )
    try:
        refresh()
    except RewardError as error:
        raise UserError(f"{field}extra", str(error)) from error
    if unknown := sorted(set(reward.extra_weights) - set(part_names())):
        raise UserError(
            f"{field}extra", f"there is no reward part {unknown[0]!r}; there are: {', '.join(part_names())}"
        )


def check_feedback(feedback: FeedbackConfig, field: str) -> None:
    """The rules of textual feedback must exist, and `model` needs a language model. Raises UserError."""
    from trainer.learning.feedback import MODEL
    from trainer.learning.feedback.find import RULES

    if feedback.coefficient == 0:
        return
    if unknown := sorted(set(feedback.named_rules) - {*RULES, MODEL}):
        raise UserError(f"{field}rules", f"there is no rule {unknown[0]!r}; there are: {', '.join((*RULES, MODEL))}")
    if MODEL in feedback.named_rules and not (env().judge_url and env().judge_model):
        raise UserError(
            f"{field}rules",
            "no language model is configured; set OPENCOMPOSER_JUDGE_URL and OPENCOMPOSER_JUDGE_MODEL, or leave model out",
        )
