"""Targeted textual feedback: a hint at one bad turn, learned beside the reward.

find.py      which turn went wrong, and a short hint (rules)
writer.py    the same by a language model
insert.py    the turn's own tokens again, with the hint in the context before them
distill.py   KL from the policy that reads the hint to the policy that does not, on that turn's tokens only
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from itertools import islice, zip_longest

from sandbox.grading.audit.judge.client import JudgeError
from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from trainer.config import RLConfig
from trainer.learning.feedback.find import Hint, find
from trainer.learning.feedback.insert import Renderer, hinted
from trainer.learning.feedback.writer import HintWriter
from trainer.rollouts.types import HintedTurn, Trajectory

log = logging.getLogger(__name__)
MODEL = "model"
"""The rule that asks a language model."""

_provider: Callable[[], HintWriter | None] = lambda: None  # noqa: E731


def use(provider: Callable[[], HintWriter | None]) -> None:
    """Tell where the hint writer of this installation comes from."""
    global _provider
    _provider = provider


def hints_of(
    trajectories: Sequence[Trajectory], config: RLConfig, renderer: Renderer, *, seed: int
) -> list[HintedTurn]:
    """The hinted turns of a group, at most `most_hints`; [] while the coefficient is 0.

    Rollouts take turns in an order drawn by `seed` and task, one hint each time, so that none is left out for its place.

    Raises ValueError: a rule that does not exist, or `model` without an endpoint. A model that gives no usable answer
    costs its hints, not the group.
    """
    settings = config.feedback
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
        most = config.sampling.max_context_tokens
        turns = [hinted(trajectory, hint, renderer=renderer, schemas=schemas, most=most) for hint in hints]
        by_rollout.append([turn for turn in turns if turn is not None])
    task = trajectories[0].bundle_hash if trajectories else ""
    random.Random(f"hints:{seed}:{task}").shuffle(by_rollout)
    rounds = (turn for some in zip_longest(*by_rollout) for turn in some if turn is not None)
    return list(islice(rounds, settings.most_hints))


def _asked(trajectory: Trajectory) -> list[Hint]:
    writer = _provider()
    if writer is None:
        raise ValueError(
            "feedback.rules names model, and no language model is configured; "
            "set OPENCOMPOSER_JUDGE_URL and OPENCOMPOSER_JUDGE_MODEL"
        )
    try:
        return writer.hints(trajectory)
    except JudgeError as error:
        log.warning("no hints for %s: %s", trajectory.task_id, error)
        return []


__all__ = ["HintWriter", "hints_of", "use"]
