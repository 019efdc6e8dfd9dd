"""Groups of a run that are accepted without sandboxes and engine: the same tokens for a prompt whenever it is played."""

from __future__ import annotations

from composer_web.core.artifacts import artifacts
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.runs.models import Run
from tests.trainer.orchestrator.groups import group_of
from tests.web.making import trajectory


def play(group: Group, *, owner: str = "worker-1", signal: bool = True) -> bool:
    """Claim the group and accept it through the services; False when somebody else has it. Without a `signal` all its
    rollouts fail."""
    claimed = rollouts.claim(group_id=group.pk, owner=owner, seconds=60)
    if claimed is None:
        return False
    prefix = f"groups/{group.pk}/{claimed.held.token}"
    graded = []
    for sample, passed in enumerate((signal, False)):
        made = trajectory(claimed.group, sample, passed=passed)
        artifacts().put_model(f"{prefix}/{sample}.json.zst", made)
        graded.append(rollouts.Graded(made, f"{prefix}/{sample}.json.zst"))
    learned = group_of(group.prompt_index, claimed.group.dispatched_version)
    if not signal:
        flat = [one.model_copy(update={"advantages": [0.0] * len(one.advantages)}) for one in learned.samples]
        learned = learned.model_copy(update={"samples": flat, "rewards": [0.0] * len(flat)})
    artifacts().put_model(f"{prefix}/train.json.zst", learned)
    return rollouts.accept(
        group=claimed.group,
        held=claimed.held,
        graded=graded,
        train_key=f"{prefix}/train.json.zst",
        oldest_version=learned.oldest_version,
        infra_errors=(),
    )


def play_dispatched(run: Run) -> int:
    """Play what is dispatched now; returns how many groups were accepted."""
    return sum(play(group) for group in Group.objects.filter(run=run, state="dispatched").order_by("prompt_index"))
