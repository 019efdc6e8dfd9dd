"""Writes of annotations. Each applies at once to runs whose `stage.labels.exclude` names it."""

from __future__ import annotations

import re

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.permissions import may_in
from composer_web.accounts.services import audit
from composer_web.core.errors import Denied, UserError
from composer_web.live.hints import hint
from composer_web.review import label_rules
from composer_web.review.models import VERDICTS, Annotation, AnnotationKind
from composer_web.rollouts.models import Rollout

TAG = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
MAX_COMMENT = 4000
MAX_MARKS = 500
"""Annotations of one rollout that are not removed."""


@transaction.atomic
def annotate(
    *,
    rollout: Rollout,
    kind: str,
    actor: User,
    value: str = "",
    text: str = "",
    turn: int | None = None,
    tokens: tuple[int, int] | None = None,
    assignee: str = "",
) -> Annotation:
    """Set an annotation. A new verdict of the same person, or a new assignee, replaces the one before; a tag or a request
    for review that is there already is returned. `tokens` is a range within `turn`. Raises UserError."""
    Rollout.objects.select_for_update(no_key=True, of=("self",)).get(pk=rollout.pk)
    present = Annotation.objects.filter(rollout=rollout, removed_at=None)
    fields = _checked(rollout, kind, value=value, text=text, turn=turn, tokens=tokens, assignee=assignee)
    match kind:
        case AnnotationKind.VERDICT:
            before = present.filter(kind=kind, author=actor)
        case AnnotationKind.TAG:
            before = present.filter(kind=kind, value=fields["value"])
        case AnnotationKind.COMMENT:
            before = Annotation.objects.none()
        case _:
            before = present.filter(kind=kind)
    if (same := before.first()) is not None:
        if all(getattr(same, name) == given for name, given in fields.items()):
            return same
        before.update(removed_at=timezone.now(), removed_by=actor)
    if present.count() >= MAX_MARKS:
        raise UserError("rollout", f"rollout {rollout.pk} has {MAX_MARKS} annotations; remove some first")
    made = Annotation.objects.create(rollout=rollout, kind=kind, author=actor, **fields)
    audit(actor=actor, action="rollout.annotate", target=f"rollout:{rollout.pk}", kind=kind, value=made.value)
    label_rules.apply_annotation(rollout=rollout, actor=actor)
    hint(f"group:{rollout.group_id}", "reviews")
    return made


def _checked(
    rollout: Rollout,
    kind: str,
    *,
    value: str,
    text: str,
    turn: int | None,
    tokens: tuple[int, int] | None,
    assignee: str,
) -> dict[str, object]:
    """Columns of a new row. Raises UserError that names the field."""
    if kind not in AnnotationKind.values:
        raise UserError("kind", f"kind is one of {', '.join(AnnotationKind.values)}, not {kind[:40]!r}")
    if kind != AnnotationKind.COMMENT and (turn is not None or tokens is not None):
        raise UserError("turn", "only a comment belongs to a turn; leave turn and tokens empty")
    match kind:
        case AnnotationKind.VERDICT:
            if value not in VERDICTS:
                raise UserError("value", f"a verdict is one of {', '.join(VERDICTS)}, not {value[:40]!r}")
            return {"value": value}
        case AnnotationKind.TAG:
            name = value.strip().lower().replace(" ", "-")
            if not TAG.fullmatch(name):
                raise UserError(
                    "value", f"a tag has up to 40 letters, digits, '-' and '_', not {value[:60]!r}; shorten it"
                )
            return {"value": name}
        case AnnotationKind.COMMENT:
            words = text.strip()
            if not words:
                raise UserError("text", "the comment is empty; write it or cancel")
            if len(words) > MAX_COMMENT:
                raise UserError("text", f"a comment has at most {MAX_COMMENT} characters, not {len(words)}; shorten it")
            _check_place(rollout, turn, tokens)
            start, end = tokens or (None, None)
            return {"text": words, "turn": turn, "token_start": start, "token_end": end}
        case AnnotationKind.ASSIGNEE:
            person = User.objects.filter(username=assignee, is_active=True).first()
            if person is None or not may_in(person, rollout.project_id, "reviewer"):
                raise UserError(
                    "assignee", f"no reviewer of this project is called {assignee[:80]!r}; choose one of them"
                )
            return {"assignee": person}
    return {}


def _check_place(rollout: Rollout, turn: int | None, tokens: tuple[int, int] | None) -> None:
    """Raises UserError."""
    if turn is None:
        if tokens is not None:
            raise UserError("turn", "a token range lies in a turn; name the turn")
        return
    if rollout.verdict and not 0 <= turn < rollout.turns:
        raise UserError("turn", f"rollout {rollout.pk} has turns 0 to {rollout.turns - 1}, not {turn}")
    if tokens is not None and not 0 <= tokens[0] < tokens[1]:
        raise UserError("token_end", f"a token range ends after its start; found {tokens[0]} to {tokens[1]}")


@transaction.atomic
def remove(*, annotation: Annotation, actor: User) -> None:
    """Remove an annotation; its row stays as history. Comments and verdicts are their author's or an admin's to remove.
    Idempotent. Raises Denied."""
    mine = annotation.author_id == actor.pk
    if annotation.kind in (AnnotationKind.COMMENT, AnnotationKind.VERDICT) and not mine and not actor.may("admin"):
        raise Denied(f"only its author or an admin removes a {annotation.kind}; yours would stand beside it")
    rows = Annotation.objects.filter(pk=annotation.pk, removed_at=None)
    if rows.update(removed_at=timezone.now(), removed_by=actor):
        audit(
            actor=actor,
            action="rollout.unannotate",
            target=f"rollout:{annotation.rollout_id}",
            kind=annotation.kind,
            value=annotation.value,
        )
        hint(f"group:{annotation.rollout.group_id}", "reviews")
