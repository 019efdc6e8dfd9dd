"""Records which export files contain a session before the session is read. A deletion thus finds every file, also
partial ones.

Both sides lock sessions first and exports second. A writer waits for a running deletion and then omits the deleted
sessions. A deletion waits for a running record and then finds it. The foreign key rejects a deletion that missed one.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from composer_web.accounts.models import User
from composer_web.gateway.models import Session, SessionExport
from composer_web.rollouts import exports
from composer_web.rollouts.export_models import Export


@transaction.atomic
def hold(export: int, sessions: Sequence[int]) -> list[int]:
    """Record that the export will contain these sessions. Returns those that still exist. Raises exports.Voided."""
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
    """Void all files with these sessions by the end of the transaction. The caller has locked the sessions."""
    holding = set(SessionExport.objects.filter(session__in=sessions).values_list("export", flat=True))
    exports.void(pks=holding, why=why, actor=actor)
    SessionExport.objects.filter(export__in=holding).delete()
