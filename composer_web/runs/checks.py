"""Checks of settings that depend on this installation."""

from __future__ import annotations

from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.runs.comparing import flat
from trainer.config import RewardConfig, RunConfig, TextualFeedbackConfig


def check_text(field: str, text: str) -> str:
    """Return `text` if Postgres can store it. Raises UserError naming `field`."""
    if "\x00" in text:
        raise UserError(field, f"{field} holds a NUL character; remove it")
    return text


def check_words(config: RunConfig) -> None:
    """Apply `check_text` to every text setting."""
    for path, value in flat(config.model_dump(mode="json")).items():
        if isinstance(value, str):
            check_text(path, value)


def check_reward(reward: RewardConfig, field: str) -> None:
    """Check that the language model and reward components exist. Raises UserError naming the setting below `field`."""
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


def check_feedback(feedback: TextualFeedbackConfig, field: str) -> None:
    """Check that the rules of textual feedback exist and that `model` has a language model. Raises UserError."""
    from trainer.algorithms.textual_feedback import MODEL
    from trainer.algorithms.textual_feedback.find import RULES

    if feedback.coefficient == 0:
        return
    if unknown := sorted(set(feedback.named_rules) - {*RULES, MODEL}):
        raise UserError(f"{field}rules", f"there is no rule {unknown[0]!r}; there are: {', '.join((*RULES, MODEL))}")
    if MODEL in feedback.named_rules and not (env().judge_url and env().judge_model):
        raise UserError(
            f"{field}rules",
            "no language model is configured; set OPENCOMPOSER_JUDGE_URL and OPENCOMPOSER_JUDGE_MODEL, or leave model out",
        )
