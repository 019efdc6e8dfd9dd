"""Creates a task draft from a user session: the user's words, with the environment of an existing task.

The files on the user's machine are not recorded. The caller therefore names the task whose environment and hidden tests
the draft starts with. The draft is then edited like any other.
"""

from __future__ import annotations

from django.db import transaction

from composer_web.accounts.models import User
from composer_web.core.errors import UserError
from composer_web.gateway.models import Session, SessionDraft
from composer_web.review import task_drafts
from composer_web.review.models import Draft
from composer_web.rollouts import selectors
from composer_web.rollouts.models import Rollout


@transaction.atomic
def create_draft(
    *, session: Session, task: str, slug: str, instruction: str, category: str = "debug", actor: User
) -> Draft:
    """Raises UserError, NotFound, ArtifactError."""
    rollout = selectors.readable(Rollout.objects.filter(group__task_version__task__slug=task)).order_by("-pk").first()
    if rollout is None:
        raise UserError(
            "task", f"no rollout of a task {task[:100]!r} is recorded; name a task that was tried at least once"
        )
    draft = task_drafts.create_draft(
        rollout=rollout, turn=0, slug=slug, instruction=instruction, category=category, actor=actor
    )
    draft.provenance = {**draft.provenance, "session": session.pk, "session_policy": session.policy.at(session.version)}
    draft.save(update_fields=["provenance", "changed_at"])
    SessionDraft.objects.create(session=session, draft=draft)
    return draft
