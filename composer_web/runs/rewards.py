"""The reward of a run, and changing it while the run goes on.

A run's configuration never changes once it was started. A changed reward is an event of the run, written once, and the
newest such event is in force: groups that start after it are scored by it. All rollouts of a group are scored alike, and
each stored part carries its weight and version, so that a curve that jumps can be told from one that was moved.
"""

from __future__ import annotations

from django.db import transaction

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.runs.checks import check_reward
from composer_web.runs.models import Run, RunEvent, RunState
from composer_web.runs.services import add_event
from trainer.config import RewardConfig, RLConfig

KIND = "reward"
LIVE = frozenset({RunState.QUEUED, RunState.RUNNING, RunState.PAUSING, RunState.PAUSED})


def in_force(run: Run) -> RewardConfig:
    """Reward for groups that start now. Raises UserError for a run without rewards."""
    stage = run.configuration.stage
    if not isinstance(stage, RLConfig):
        raise UserError("run", f"run {run.pk} is of kind {run.kind}: only RL runs have rewards")
    changed = RunEvent.objects.filter(run=run, kind=KIND).order_by("-pk").values_list("data", flat=True).first()
    return RewardConfig.model_validate(changed["reward"]) if changed else stage.reward


@transaction.atomic
def change(*, run: Run, reward: RewardConfig, actor: User | None = None) -> RunEvent:
    """Score new groups by `reward` from now on. Raises UserError, or Conflict if the run has not started or has
    ended."""
    state = Run.objects.select_for_update().values_list("state", flat=True).get(pk=run.pk)
    before = in_force(run)
    if state not in LIVE:
        raise Conflict(f"run {run.pk} is {state}: its reward can change from its start to its end", "state")
    check_reward(reward, "")
    changes = differences(before, reward)
    if not changes:
        raise UserError("reward", "nothing is different from the reward in force")
    audit(actor=actor, action="run.reward", target=f"run:{run.pk}", changes=changes)
    return add_event(
        run=run,
        kind=KIND,
        level="warning",
        message=f"reward changed: {'; '.join(changes)}",
        data={"reward": reward.model_dump(mode="json"), "changes": changes},
    )


def differences(before: RewardConfig, after: RewardConfig) -> list[str]:
    """`name: old → new` for each differing setting."""
    old, new = _flat(before.model_dump()), _flat(after.model_dump())
    return [f"{name}: {old[name]} → {new[name]}" for name in new if old[name] != new[name]]


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
