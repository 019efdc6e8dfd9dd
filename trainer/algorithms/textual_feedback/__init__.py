"""Targeted textual feedback: hints at single bad turns, trained beside the reward.

find.py      rules that find a faulty turn and write a short hint
writer.py    hints written by a language model
insert.py    the turn's own tokens again, with the hint in the context before them

`trainer/learning/distillation.py` computes the loss.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from itertools import islice, zip_longest

from sandbox.grading.audit.judge.client import JudgeError
from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from trainer.algorithms.textual_feedback.find import Hint, find
from trainer.algorithms.textual_feedback.insert import Renderer, hinted
from trainer.algorithms.textual_feedback.writer import HintWriter
from trainer.config import RLConfig
from trainer.types import HintedTurn, Trajectory

log = logging.getLogger(__name__)
MODEL = "model"
"""Rule that asks a language model."""

_provider: Callable[[], HintWriter | None] = lambda: None  # noqa: E731


def use(provider: Callable[[], HintWriter | None]) -> None:
    """Set the provider of this installation's hint writer."""
    global _provider
    _provider = provider


def hints_of(
    trajectories: Sequence[Trajectory], config: RLConfig, renderer: Renderer, *, seed: int
) -> list[HintedTurn]:
    """Hinted turns of a group, at most `max_hints`; [] while the coefficient is 0.

    Rollouts contribute one hint at a time, in an order drawn from `seed` and task, so that position does not favour
    any.

    Raises ValueError: unknown rule, or `model` without an endpoint. An unusable model answer costs its hints, not the
    group.
    """
    settings = config.textual_feedback
    if settings.coefficient == 0:
        return []
    schemas = schemas_of(get_profile(config.harness.profile))
    names = [str(schema["function"]["name"]) for schema in schemas]
    rules = [rule for rule in settings.named_rules if rule != MODEL]
    by_rollout: list[list[HintedTurn]] = []
    for trajectory in trajectories:
        hints = find(trajectory, rules=rules, tools=names)
        if MODEL in settings.named_rules:
            hints += [hint for hint in _asked(trajectory) if hint.turn not in {known.turn for known in hints}]
        max_tokens = config.sampling.max_context_tokens
        turns = [hinted(trajectory, hint, renderer=renderer, schemas=schemas, max_tokens=max_tokens) for hint in hints]
        by_rollout.append([turn for turn in turns if turn is not None])
    task = trajectories[0].bundle_hash if trajectories else ""
    random.Random(f"hints:{seed}:{task}").shuffle(by_rollout)
    rounds = (turn for some in zip_longest(*by_rollout) for turn in some if turn is not None)
    return list(islice(rounds, settings.max_hints))


def _asked(trajectory: Trajectory) -> list[Hint]:
    writer = _provider()
    if writer is None:
        raise ValueError(
            "textual_feedback.rules names model, and no language model is configured; "
            "set OPENCOMPOSER_JUDGE_URL and OPENCOMPOSER_JUDGE_MODEL"
        )
    try:
        return writer.hints(trajectory)
    except JudgeError as error:
        log.warning("no hints for %s: %s", trajectory.task_id, error)
        return []


__all__ = ["HintWriter", "hints_of", "use"]
