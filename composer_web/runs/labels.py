"""Tags, notes and archiving of runs. Every change is audited with the previous value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.live.hints import hint
from composer_web.runs.checks import check_text
from composer_web.runs.models import RUN_LIVE, Run

TAG = re.compile(r"[a-z0-9][a-z0-9._:-]{0,39}")
MAX_TAGS = 20
MAX_NOTES = 20_000


def parse_tags(text: str) -> list[str]:
    """Split tags at commas or spaces. Raises UserError for an invalid tag."""
    found = [tag for tag in re.split(r"[,\s]+", text.strip().lower()) if tag]
    for tag in found:
        if not TAG.fullmatch(tag):
            raise UserError("tags", f"{tag[:50]!r} is no tag: up to 40 letters, digits and . _ : -, such as `baseline`")
    return sorted(set(found))


@transaction.atomic
def set_tags(*, run: Run, tags: Iterable[str], actor: User | None = None) -> Run:
    """Replace the run's tags. Raises UserError."""
    row = Run.objects.select_for_update(no_key=True).get(pk=run.pk)
    before, row.tags = row.tags, parse_tags(",".join(tags))
    if len(row.tags) > MAX_TAGS:
        raise UserError("tags", f"a run has at most {MAX_TAGS} tags; these would be {len(row.tags)}")
    if row.tags != before:
        row.save(update_fields=["tags"])
        audit(actor=actor, action="run.tags", target=f"run:{run.pk}", before=before, after=row.tags)
        hint("runs", f"run:{run.pk}")
    run.tags = row.tags
    return run


@transaction.atomic
def retag(*, runs: Sequence[Run], text: str, add: bool, actor: User | None = None) -> int:
    """Add tags to several runs, or remove them. Returns the number of changed runs. Raises UserError without
    changing any."""
    wanted = parse_tags(text)
    if not wanted:
        raise UserError("tags", "write at least one tag")
    changed = 0
    for run in runs:
        before = list(run.tags)
        set_tags(run=run, tags={*before, *wanted} if add else set(before) - set(wanted), actor=actor)
        changed += run.tags != before
    return changed


@transaction.atomic
def set_notes(*, run: Run, notes: str, actor: User | None = None) -> Run:
    """Set the notes (plain text). Raises UserError if they are too long."""
    notes = check_text("notes", notes.replace("\r\n", "\n").strip())
    if len(notes) > MAX_NOTES:
        raise UserError("notes", f"at most {MAX_NOTES} characters; found {len(notes)}")
    row = Run.objects.select_for_update(no_key=True).get(pk=run.pk)
    if row.notes != notes:
        audit(actor=actor, action="run.notes", target=f"run:{run.pk}", before=row.notes[:2000], after=notes[:2000])
        row.notes = notes
        row.save(update_fields=["notes"])
        hint(f"run:{run.pk}")
    run.notes = notes
    return run


@transaction.atomic
def archive_run(*, run: Run, actor: User | None = None) -> Run:
    """Hide the run from lists without deleting anything. Raises Conflict for an unfinished run."""
    row = Run.objects.select_for_update(no_key=True).get(pk=run.pk)
    if row.state in RUN_LIVE:
        raise Conflict(f"run {run.pk} is {row.state}: stop it first, or wait for its end", "state")
    if row.archived_at is not None:
        raise Conflict(f"run {run.pk} is archived already", "archived_at")
    return _put(row, run, archived=True, actor=actor)


@transaction.atomic
def restore_run(*, run: Run, actor: User | None = None) -> Run:
    """Show the run in lists again. Raises Conflict."""
    row = Run.objects.select_for_update(no_key=True).get(pk=run.pk)
    if row.archived_at is None:
        raise Conflict(f"run {run.pk} is not archived", "archived_at")
    return _put(row, run, archived=False, actor=actor)


def _put(row: Run, run: Run, *, archived: bool, actor: User | None) -> Run:
    row.archived_at = timezone.now() if archived else None
    row.save(update_fields=["archived_at"])
    audit(actor=actor, action="run.archive" if archived else "run.restore", target=f"run:{run.pk}", name=row.name)
    hint("runs", f"run:{run.pk}")
    run.archived_at = row.archived_at
    return run
