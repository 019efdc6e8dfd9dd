"""Which export files hold a session: noted before it is read, so that a deletion finds each of them, also one half written.

Both sides lock sessions first and exports second. Whoever writes waits for a deletion in progress and then leaves out what
is gone; whoever deletes waits for a note in progress and then finds it. The foreign key refuses a deletion that forgot.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from composer_web.accounts.models import User
from composer_web.gateway.models import Session, SessionExport
from composer_web.rollouts import exports
from composer_web.rollouts.kept_models import Export


@transaction.atomic
def hold(export: int, sessions: Sequence[int]) -> list[int]:
    """The file will hold these sessions; returns those that are still there. Raises exports.Voided."""
    rows = Session.objects.select_for_update(no_key=True).filter(pk__in=sessions).order_by("-pk")
    there = list(rows.values_list("pk", flat=True))
    asked = Export.objects.select_for_update(no_key=True).filter(pk=export, state="running")
    if not list(asked.values_list("pk")):
        raise exports.Voided
    SessionExport.objects.bulk_create(
        [SessionExport(session_id=pk, export_id=export) for pk in there], ignore_conflicts=True
    )
    return there


@transaction.atomic
def void(sessions: Sequence[int], *, why: str, actor: User | None) -> None:
    """No file holds these sessions any more once the transaction is over. They are locked by the caller."""
    holding = set(SessionExport.objects.filter(session__in=sessions).values_list("export", flat=True))
    exports.void(pks=holding, why=why, actor=actor)
    SessionExport.objects.filter(export__in=holding).delete()
