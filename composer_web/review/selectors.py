"""Read queries of review: open items per user, labels, agreement, and labels as filters and rewards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Sum

from composer_web.accounts.models import User
from composer_web.core.errors import NotFound, UserError
from composer_web.review import agreement, blind
from composer_web.review.models import Answer, Draft, Label, Queue, QueueItem
from composer_web.review.questions import Choice, Flags, Scale, Text
from composer_web.rollouts.models import Rollout


def queues() -> QuerySet[Queue]:
    """Queues for lists, with counts of rollouts, finished rollouts and labels."""
    rows = Queue.objects.select_related("created_by").annotate(
        rollouts=Count("items"),
        finished=Count("items", filter=Q(items__labelled_by__gte=F("reviewers"))),
        labels=Sum("items__labelled_by", default=0),
    )
    return rows.order_by("-pk")  # grouped queries have no order of their own


def get_queue(name: str) -> Queue:
    """Raises NotFound."""
    found = queues().filter(name=name).first()
    if found is None:
        raise NotFound("review queue", name)
    return found


def get_item(queue: Queue, pk: int) -> QueueItem:
    """Raises NotFound."""
    found = QueueItem.objects.filter(queue=queue, pk=pk).select_related("queue", "rollout").first()
    if found is None:
        raise NotFound(f"item of queue {queue.name}", pk)
    return found


def waiting(queue: Queue, user: User) -> QuerySet[QueueItem]:
    """Rollouts that lack reviewers and that this user may label but has not, in order."""
    mine = Label.objects.filter(item=OuterRef("pk"), reviewer=user)
    return queue.items.filter(~Exists(mine), labelled_by__lt=queue.reviewers).order_by("pk")


def following(queue: Queue, user: User, current: QueueItem | None) -> QueueItem | None:
    """Next item after `current`; at the end, the first skipped one. None if the queue is empty."""
    if queue.closed_at is not None:
        return None
    rows = waiting(queue, user)
    if current is None:
        return rows.first()
    return rows.filter(pk__gt=current.pk).first() or rows.exclude(pk=current.pk).first()


def preceding(item: QueueItem) -> QueueItem | None:
    return QueueItem.objects.filter(queue=item.queue_id, pk__lt=item.pk).order_by("-pk").first()


# --- labels -----------------------------------------------------------------------------------------------------


def present(items: QuerySet[QueueItem]) -> QuerySet[Label]:
    """Current label of each user, by item."""
    return (
        Label.objects.filter(item__in=items)
        .select_related("reviewer", "item")
        .order_by("item_id", "reviewer_id", "-id")
        .distinct("item_id", "reviewer_id")
    )


def labels_of(item: QueueItem) -> list[Label]:
    return sorted(present(QueueItem.objects.filter(pk=item.pk)), key=lambda one: one.pk)


def label_of(item: QueueItem, user: User) -> Label | None:
    """The user's current label."""
    return Label.objects.filter(item=item, reviewer=user).order_by("-id").first()


def sees_labels(item: QueueItem, user: User) -> bool:
    """Whether others' labels can no longer bias this user: they have given theirs, or may not give any."""
    return not user.ranks("reviewer") or not blind.unanswered(user.pk).filter(pk=item.pk).exists()


def labelled(text: str) -> QuerySet[QueueItem]:
    """Items labelled `queue:question=value`, or `queue` with any label. None for other text."""
    name, _, rest = text.partition(":")
    if not rest:
        return QueueItem.objects.filter(queue__name=name, labelled_by__gte=1)
    question, equals, value = rest.partition("=")
    if not equals:
        return QueueItem.objects.none()
    return QueueItem.objects.filter(
        Exists(Answer.objects.filter(item=OuterRef("pk"), question=question, value=value)), queue__name=name
    )


def agreed(queue: Queue, question: str, value: str, *, complete: bool = False) -> list[int]:
    """Rollouts for which more than half of the labels have this answer. `complete`: with all their reviewers."""
    gave = Count("answers", filter=Q(answers__question=question, answers__value=value))
    rows = queue.items.annotate(gave=gave).filter(labelled_by__gt=0, labelled_by__lt=F("gave") * 2)
    if complete:
        rows = rows.filter(labelled_by__gte=queue.reviewers)
    return list(rows.order_by("rollout_id").values_list("rollout_id", flat=True))


def worths(queue: Queue, question: str, *, field: str = "question") -> dict[str, float]:
    """Answer → reward from 0 to 1: a scale by its ends, the options of a choice from the last (0) to the first (1). Raises
    UserError for other questions."""
    asked = queue.questionnaire.get(question)
    if isinstance(asked, Scale):
        return {str(n): (n - asked.low) / (asked.high - asked.low) for n in asked.values}
    if isinstance(asked, Choice) and len(asked.options) > 1:
        top = len(asked.options) - 1
        return {option.value: (top - i) / top for i, option in enumerate(asked.options)}
    raise UserError(field, f"{question!r} is no scale and no choice: it gives no reward")


def rewards(queue: Queue, question: str, *, of: Collection[int] | None = None) -> dict[int, float]:
    """Rollout → mean of its reviewers' answers between 0 and 1. `of`: only of these, and only of those among them that have
    all their reviewers. Raises UserError."""
    worth = worths(queue, question)
    rows = Answer.objects.filter(item__queue=queue, question=question)
    if of is not None:
        rows = rows.filter(item__rollout__in=of, item__labelled_by__gte=queue.reviewers)
    found: dict[int, list[float]] = defaultdict(list)
    for rollout, value in rows.values_list("item__rollout_id", "value"):
        found[rollout].append(worth[value])
    return {rollout: sum(values) / len(values) for rollout, values in sorted(found.items())}


# --- agreement --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement on one question or flag: answer counts and chance-corrected agreement."""

    question: str
    text: str
    counts: dict[str, int]
    items: int
    """Number of items with at least two answers."""
    share: float | None
    alpha: float | None
    kappa: float | None
    """Mean over the pairs of users who labelled the same items."""


def agreements(queue: Queue) -> list[Agreement]:
    """Agreements by question. One query."""
    labels: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for one in present(queue.items.all()):
        labels[one.item_id][one.reviewer_id] = one.answers
    found = []
    for question in queue.questionnaire.questions:
        if isinstance(question, Text):
            continue
        level: agreement.Level = "interval" if isinstance(question, Scale) else "nominal"
        if isinstance(question, Flags):
            for option in question.options:
                rows = [
                    {
                        person: "yes" if option.value in answers.get(question.id, ()) else "no"
                        for person, answers in item.items()
                    }
                    for item in labels.values()
                ]
                found.append(_agreement(f"{question.id}={option.value}", option.label, rows, level))
            continue
        rows = [
            {person: str(answers[question.id]) for person, answers in item.items() if question.id in answers}
            for item in labels.values()
        ]
        found.append(_agreement(question.id, question.text, rows, level))
    return found


def _agreement(name: str, text: str, rows: Sequence[dict[int, str]], level: agreement.Level) -> Agreement:
    units = [list(row.values()) for row in rows]
    counts: dict[str, int] = defaultdict(int)
    for unit in units:
        for value in unit:
            counts[value] += 1
    people = sorted({person for row in rows for person in row})
    found = [
        agreement.kappa([(row[a], row[b]) for row in rows if a in row and b in row]) for a, b in combinations(people, 2)
    ]
    kappas = [one for one in found if one is not None]
    return Agreement(
        question=name,
        text=text,
        counts=dict(sorted(counts.items())),
        items=sum(len(unit) >= 2 for unit in units),
        share=agreement.share(units),
        alpha=agreement.alpha(units, level),
        kappa=sum(kappas) / len(kappas) if kappas else None,
    )


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A rollout with different answers to some questions. `labels` is empty for users who have yet to label it."""

    item: QueueItem
    questions: tuple[str, ...]
    labels: tuple[Label, ...]
    hidden: bool


def disagreements(queue: Queue, user: User, *, limit: int = 200) -> list[Disagreement]:
    """Oldest first. Two queries."""
    texts = {question.id for question in queue.questionnaire.questions if isinstance(question, Text)}
    items = {item.pk: item for item in queue.items.filter(labelled_by__gte=2).select_related("rollout", "queue")}
    by_item: dict[int, list[Label]] = defaultdict(list)
    for one in present(queue.items.filter(labelled_by__gte=2)):
        by_item[one.item_id].append(one)
    rows = []
    for pk in sorted(by_item):
        found = sorted(by_item[pk], key=lambda one: one.pk)
        names = sorted({name for one in found for name in one.answers if name not in texts})
        differ = tuple(n for n in names if len({str(one.answers.get(n, "")) for one in found}) > 1)
        if not differ:
            continue
        item = items[pk]
        open_ = item.labelled_by < queue.reviewers and queue.closed_at is None and user.ranks("reviewer")
        hidden = open_ and user.pk not in {one.reviewer_id for one in found}
        rows.append(Disagreement(item, differ, () if hidden else tuple(found), hidden))
    return rows[:limit]


# --- drafts -----------------------------------------------------------------------------------------------------


def drafts() -> QuerySet[Draft]:
    """Drafts for lists, with source and author, without files."""
    return Draft.objects.select_related("rollout", "created_by", "version__task").defer(
        "files", "verifier", "gold", "version__spec"
    )


def get_draft(pk: int) -> Draft:
    """With its source task. Raises NotFound."""
    query = Draft.objects.select_related("rollout__group__task_version__task", "created_by", "version__task")
    found = query.filter(pk=pk).first()
    if found is None:
        raise NotFound("draft", pk)
    return found


def labelled_rollouts(query: QuerySet[Rollout], text: str) -> QuerySet[Rollout]:
    """Rollouts with this label (see `labelled`), without items that are blind for the current user."""
    return query.filter(Exists(labelled(text).exclude(pk__in=blind.items()).filter(rollout=OuterRef("pk"))))
