"""Reads of annotations: those of a rollout, the filter `annotation`, and what reviewers may not see yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db.models import Exists, OuterRef, Q, QuerySet

from composer_web.accounts import access
from composer_web.accounts.models import User
from composer_web.core.errors import NotFound
from composer_web.review import blind
from composer_web.review.models import VERDICTS, Annotation, AnnotationKind
from composer_web.rollouts.models import Rollout

QUEUE = "annotations"
"""Stands in label rules and filters where a review queue's name would."""


@dataclass
class Sheet:
    """Annotations of one rollout by what the page shows them as."""

    verdicts: list[Annotation] = field(default_factory=list)
    mine: Annotation | None = None
    """Verdict of the person who asks."""
    tags: list[Annotation] = field(default_factory=list)
    needs_review: Annotation | None = None
    assignee: Annotation | None = None
    comments: list[Annotation] = field(default_factory=list)
    by_turn: dict[int, list[Annotation]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        kinds = (self.verdicts, self.tags, self.comments)
        return sum(map(len, kinds)) + bool(self.needs_review) + bool(self.assignee)


def present() -> QuerySet[Annotation]:
    """Annotations that are not removed, newest first, with the people they name. Those of others about rollouts that the
    request's reviewer has yet to label in a queue are left out."""
    rows = Annotation.objects.filter(removed_at=None).select_related("author", "assignee", "rollout__group")
    return rows.filter(visible())


def visible() -> Q:
    """Condition on annotations that the request may see."""
    hidden, now = blind.items(), access.current()
    if hidden.query.is_empty() or now is None:
        return Q()
    return Q(author_id=now.user_id) | ~Q(Exists(hidden.filter(rollout=OuterRef("rollout"))))


def get(pk: int) -> Annotation:
    """Raises NotFound."""
    found = present().filter(pk=pk).first()
    if found is None:
        raise NotFound("annotation", pk)
    return found


def sheet_of(rollout: Rollout, user: User, *, hidden: bool = False) -> Sheet:
    """Annotations of a rollout; with `hidden` only the user's own, because they have yet to label it. One query."""
    rows = present().filter(rollout=rollout).order_by("pk")
    return sheet(rows.filter(author=user) if hidden else rows, user)


def sheet(rows: Sequence[Annotation] | QuerySet[Annotation], user: User) -> Sheet:
    found = Sheet()
    for one in rows:
        match one.kind:
            case AnnotationKind.VERDICT:
                found.verdicts.append(one)
                found.mine = one if one.author_id == user.pk else found.mine
            case AnnotationKind.TAG:
                found.tags.append(one)
            case AnnotationKind.NEEDS_REVIEW:
                found.needs_review = one
            case AnnotationKind.ASSIGNEE:
                found.assignee = one
            case _:
                found.comments.append(one)
                if one.turn is not None:
                    found.by_turn.setdefault(one.turn, []).append(one)
    return found


def matching(text: str, user_id: int | None = None) -> QuerySet[Annotation]:
    """Annotations that the text names: `verdict=bad`, `tag=x`, `assignee=ann` or `assignee=me`, `needs_review`, `comment`,
    or any kind without a value. None for other text."""
    kind, _, value = text.strip().partition("=")
    if kind not in AnnotationKind.values:
        return Annotation.objects.none()
    rows = Annotation.objects.filter(removed_at=None, kind=kind)
    if not value:
        return rows
    if kind == AnnotationKind.ASSIGNEE:
        return rows.filter(assignee=user_id) if value == "me" else rows.filter(assignee__username=value)
    return rows.filter(value=value)


def annotated_rollouts(query: QuerySet[Rollout], text: str) -> QuerySet[Rollout]:
    """Rollouts with such an annotation; `none` finds those without any."""
    now = access.current()
    if text.strip() == "none":
        any_ = Annotation.objects.filter(visible(), removed_at=None, rollout=OuterRef("pk"))
        return query.filter(~Exists(any_))
    found = matching(text, now.user_id if now else None).filter(visible(), rollout=OuterRef("pk"))
    return query.filter(Exists(found))


def ruled(text: str) -> QuerySet[Annotation]:
    """Annotations of a training rule's `question=value`. Verdicts count when no other person's verdict differs."""
    rows = matching(text)
    kind, _, value = text.partition("=")
    if kind != AnnotationKind.VERDICT:
        return rows
    others = Annotation.objects.filter(rollout=OuterRef("rollout"), kind=kind, removed_at=None).exclude(value=value)
    return rows.filter(~Exists(others))


def tags() -> list[str]:
    """Tags in use, for completion."""
    rows = Annotation.objects.filter(removed_at=None, kind=AnnotationKind.TAG)
    return list(rows.order_by("value").values_list("value", flat=True).distinct()[:200])


def values_of(kind: str) -> tuple[str, ...] | None:
    """Values that a rule may name for a kind. None: any."""
    return VERDICTS if kind == AnnotationKind.VERDICT else None
