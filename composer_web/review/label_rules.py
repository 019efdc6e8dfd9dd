"""Effects of labels on runs that name them in `stage.labels`: exclude, hold back, reward.

All of it happens before a group is trained on. What was trained stays as it was trained, and a rollout keeps the reward
that it was recorded with: what reviewers pay is in the training view of its group.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import F

from composer_web.accounts.models import User
from composer_web.core.errors import UserError
from composer_web.live.hints import hint
from composer_web.review import annotated, selectors
from composer_web.review.excluding import exclude_rollouts, key_of
from composer_web.review.models import AnnotationKind, Queue, QueueItem
from composer_web.review.questions import Text
from composer_web.rollouts.dispatch import quarantine
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.models import Run
from trainer.config import LabelsConfig, RLConfig, RunConfig
from trainer.types import RewardPart, Trajectory

PART = "label"
"""Name of the reward part."""


def rules_of(run: Run | None) -> LabelsConfig:
    stage = run.configuration.stage if run is not None else None
    return stage.labels if isinstance(stage, RLConfig) else LabelsConfig()


def check_config(config: RunConfig) -> list[str]:
    """The check of a run's configuration that this app registers with `runs`. Raises UserError."""
    if isinstance(config.stage, RLConfig):
        check(config.stage, "stage.labels.")
    return []


def check(stage: RLConfig, field: str) -> None:
    """Queues, questions and answers must be there. Raises UserError naming the setting below `field`."""
    labels = stage.labels
    if stage.sessions.channel and labels != LabelsConfig():
        raise UserError(field.rstrip("."), "review queues hold rollouts of tasks; a run on sessions has none")
    for name, rules in (("exclude", labels.excluded), ("exclude_tasks", labels.excluded_tasks)):
        for rule in rules:
            if rule.queue == annotated.QUEUE:
                _check_annotations(field + name, rule.question, rule.value)
                continue
            asked = _queue(rule.queue, field + name).questionnaire.get(rule.question)
            if isinstance(asked, Text):
                raise UserError(field + name, f"{rule.question!r} is answered in words; choose another question")
            if rule.value not in asked.answers:
                raise UserError(field + name, f"{rule.question}: {', '.join(asked.answers)}; found {rule.value!r}")
    if labels.paid is not None:
        name, question = labels.paid
        selectors.worths(_queue(name, field + "reward"), question, field=field + "reward")


def _check_annotations(field: str, kind: str, value: str) -> None:
    """Raises UserError for a rule on annotations other than `verdict=` and `tag=`."""
    if kind not in (AnnotationKind.VERDICT, AnnotationKind.TAG):
        raise UserError(field, f"annotations:verdict=… or annotations:tag=…; found {kind!r}")
    values = annotated.values_of(kind)
    if values is not None and value not in values:
        raise UserError(field, f"annotations:{kind} is one of {', '.join(values)}; found {value!r}")


def _queue(name: str, field: str) -> Queue:
    found = Queue.objects.filter(name=name).first()
    if found is None:
        raise UserError(field, f"there is no review queue {name!r}; make it on the page Review")
    return found


def excluded_versions(labels: LabelsConfig) -> set[int]:
    """Task versions of which reviewers gave an answer of `exclude_tasks` about a rollout, in whichever run."""
    rollouts: list[int] = []
    for rule in labels.excluded_tasks:
        if rule.queue == annotated.QUEUE:
            rollouts += annotated.ruled(f"{rule.question}={rule.value}").values_list("rollout_id", flat=True)
            continue
        queue = Queue.objects.filter(name=rule.queue).first()
        if queue is not None:
            rollouts += selectors.agreed(queue, rule.question, rule.value, complete=True)
    return set(Rollout.objects.filter(pk__in=rollouts).values_list("group__task_version_id", flat=True))


def ask(group: Group) -> None:
    """The rollouts of an accepted group join the queue that its run is paid by. Inside the accepting transaction."""
    if (paid := rules_of(group.run).paid) is None:
        return
    queue = Queue.objects.filter(name=paid[0], closed_at=None).first()
    if queue is None:
        return
    rows = group.rollouts.exclude(artifact_key="").order_by("sample")
    QueueItem.objects.bulk_create([QueueItem(queue=queue, rollout=row) for row in rows], ignore_conflicts=True)
    hint("reviews")


def awaited(run: Run) -> set[int]:
    """Accepted groups that are not trained on yet because rollouts of theirs lack reviewers."""
    if (paid := rules_of(run).paid) is None:
        return set()
    items = QueueItem.objects.filter(
        queue__name=paid[0], queue__closed_at=None, labelled_by__lt=F("queue__reviewers"), rollout__group__run=run
    )
    waiting = items.exclude(rollout__quarantine__state="active").filter(rollout__group__state="accepted")
    return set(waiting.values_list("rollout__group_id", flat=True))


def paid(group: Group, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The trajectories with the reward part that reviewers give those of them that have all their reviewers."""
    labels = rules_of(group.run)
    if labels.paid is None or not (queue := Queue.objects.filter(name=labels.paid[0]).first()):
        return list(trajectories)
    question = labels.paid[1]
    rows = {row.sample: row.pk for row in group.rollouts.all()}
    worth = selectors.rewards(queue, question, of=list(rows.values()))
    return [_with_part(one, worth.get(rows[one.sample]), labels) for one in trajectories]


def _with_part(trajectory: Trajectory, value: float | None, labels: LabelsConfig) -> Trajectory:
    if value is None or trajectory.reward is None:
        return trajectory
    part = RewardPart(name=PART, value=value, weight=labels.reward_weight, detail={"question": labels.reward})
    return trajectory.model_copy(
        update={
            "reward_parts": (*trajectory.reward_parts, part),
            "reward": trajectory.reward + part.value * part.weight,
        }
    )


def apply(*, item: QueueItem, actor: User) -> None:
    """What a label does to the run of its rollout, now that it may have all its reviewers. Inside the label's transaction."""
    queue = item.queue
    rollout = Rollout.objects.select_related("group__run").get(pk=item.rollout_id)
    group, labels = rollout.group, rules_of(rollout.group.run)
    if item.labelled_by < queue.reviewers or group.state != "accepted" or not group.train_key:
        return
    for rule in labels.excluded:
        if rule.queue == queue.name and rollout.pk in selectors.agreed(queue, rule.question, rule.value, complete=True):
            reason = f"reviewers of {queue.name} say {rule.question} is {rule.value}, which the run leaves out"
            exclude_rollouts([rollout], key=key_of(queue), reason=reason, actor=actor)
    if labels.paid is not None and labels.paid[0] == queue.name:
        locked = Group.objects.select_for_update(of=("self",)).select_related("run").get(pk=group.pk)
        if locked.state == "accepted" and locked.train_key:
            reason = f"reviewers of {queue.name} answered {labels.paid[1]}"
            quarantine.reweigh(group=locked, actor=actor.get_username(), reason=reason)
            hint(f"group:{group.pk}", f"run:{group.run_id}")


def apply_annotation(*, rollout: Rollout, actor: User) -> None:
    """Keep a rollout out of training when its run excludes what it was annotated with. Inside the annotation's transaction.
    Findings keep it out; removing the annotation does not, dismissing the finding does."""
    rollout = Rollout.objects.select_related("group__run").get(pk=rollout.pk)
    group = rollout.group
    if group.state != "accepted" or not group.train_key:
        return
    for rule in rules_of(group.run).excluded:
        if rule.queue != annotated.QUEUE:
            continue
        said = f"{rule.question}={rule.value}"
        if annotated.ruled(said).filter(rollout=rollout).exists():
            reason = f"annotated {said}, which the run leaves out"
            exclude_rollouts([rollout], key=f"annotation-{said}"[:40], reason=reason, actor=actor)
