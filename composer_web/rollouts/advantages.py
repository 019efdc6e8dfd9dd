"""Training weights of a group's rollouts: reward, including reviewers' rewards, and advantage.

Written when a group is accepted or reweighed, from the same rewards as its training view and with the trainer's own
function. Fixed once the group is trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.models import Run
from trainer.algorithms import advantages_of
from trainer.config import RLConfig

Weights = dict[str, list[float]]
"""Sample → (reward, advantage), as stored in `Group.weights`."""


@dataclass(frozen=True, slots=True)
class Weight:
    reward: float
    advantage: float
    trained: bool
    """Otherwise expected: labels and findings may still change the value."""


def weigh(run: Run | None, rewards: Mapping[int, float]) -> Weights | None:
    """Weights of the trained rollouts, by sample in order. None if nothing trains on them."""
    stage = run.configuration.stage if run is not None else None
    if not rewards or not isinstance(stage, RLConfig):
        return None
    advantages = advantages_of(list(rewards.values()), stage.objective)
    return {str(sample): [rewards[sample], advantage] for sample, advantage in zip(rewards, advantages, strict=True)}


def weights_of(group: Group, rollouts: Sequence[Rollout]) -> dict[int, Weight]:
    """Sample → weight. `rollouts` are all of the group, as `selectors.of_group` gives them; one that is left out of
    training has none, and none of a group has one before all have their verdicts or when it was dropped."""
    if group.state not in ("accepted", "consumed"):
        return {}
    kept = group.weights
    if kept is None:  # accepted before weights were kept
        rest = {r.sample: r.reward for r in rollouts if r.reward is not None and not r.held}  # type: ignore[attr-defined]
        kept = weigh(group.run, rest) or {}
    trained = group.state == "consumed" and group.weights is not None
    return {int(sample): Weight(reward, advantage, trained) for sample, (reward, advantage) in kept.items()}
