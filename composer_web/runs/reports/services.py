"""Reads and writes of reports. Operators write; every change is audited, with the content before and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.runs import metrics, selectors
from composer_web.runs.charts.panels import check_keys
from composer_web.runs.checks import check_text
from composer_web.runs.models import Report, Run
from composer_web.runs.reports.blocks import MAX_BLOCKS, Content, PanelBlock, TextBlock, parse

MAX_TITLE = 120
MAX_DESCRIPTION = 500


def reports() -> QuerySet[Report]:
    """Reports with their authors, last changed first."""
    return Report.objects.select_related("author").order_by("-updated_at", "-pk")


def get_report(pk: int) -> Report:
    """Raises NotFound."""
    found = Report.objects.select_related("author").filter(pk=pk).first()
    if found is None:
        raise NotFound("report", pk)
    return found


def content_of(report: Report) -> Content:
    return Content.model_validate({"blocks": report.blocks})


def runs_of(ids: Iterable[int]) -> dict[int, Run]:
    """The runs of these ids that this project has. One query."""
    return selectors.whole_runs().in_bulk(set(ids))


@transaction.atomic
def create_report(*, title: str, description: str = "", blocks: Any = (), actor: User) -> Report:
    """Raises UserError."""
    title, description, stored = _valid(title, description, blocks)
    made = Report.objects.create(title=title, description=description, blocks=stored, author=actor)
    audit(actor=actor, action="report.create", target=f"report:{made.pk}", title=title)
    return made


@transaction.atomic
def update_report(
    *,
    report: Report,
    title: str | None = None,
    description: str | None = None,
    blocks: Any = None,
    version: int | None = None,
    actor: User,
) -> Report:
    """Change what is given. With `version`, only if nobody saved the report since. Raises UserError, Conflict."""
    row = Report.objects.select_for_update().get(pk=report.pk)
    if version is not None and version != row.version:
        raise Conflict(
            f"the report was saved meanwhile (version {row.version}, yours began with {version}); open it in another tab, "
            "take over what you need, and save again: that replaces it",
            "version",
        )
    row.title, row.description, row.blocks = _valid(
        row.title if title is None else title,
        row.description if description is None else description,
        row.blocks if blocks is None else blocks,
        check=blocks is not None,
    )
    row.version += 1
    row.save()
    audit(actor=actor, action="report.update", target=f"report:{row.pk}", title=row.title)
    return row


@transaction.atomic
def add_panel(*, report: Report, panel: PanelBlock, actor: User) -> Report:
    """Append a panel. Raises UserError."""
    row = Report.objects.select_for_update().get(pk=report.pk)
    if len(row.blocks) >= MAX_BLOCKS:
        raise UserError("report", f"“{row.title}” has {MAX_BLOCKS} blocks; choose another report")
    row.blocks = [*row.blocks, *_stored(_checked([panel.model_dump(mode="json")]))]
    row.version += 1
    row.save()
    audit(actor=actor, action="report.update", target=f"report:{row.pk}", title=row.title, panel=panel.title)
    return row


@transaction.atomic
def delete_report(*, report: Report, actor: User) -> None:
    audit(actor=actor, action="report.delete", target=f"report:{report.pk}", title=report.title)
    report.delete()


def check_runs(content: Content) -> None:
    """Raises UserError for runs that this project lacks, and for metrics that neither these runs nor the table knows."""
    found = runs_of(content.run_ids)
    names = metrics.names(*found.values())
    wrong: dict[str, str] = {}
    for at, block in enumerate(content.blocks):
        if isinstance(block, TextBlock):
            check_text(f"blocks.{at}.text", block.text)
            continue
        if missing := [pk for pk in block.runs if pk not in found]:
            wrong[f"blocks.{at}.runs"] = f"there is no run {missing[0]} in this project; remove it"
        try:
            check_keys(block.keys, names)
        except UserError as error:
            wrong[f"blocks.{at}.keys"] = error.message
    if wrong:
        field, message = next(iter(wrong.items()))
        raise UserError(field, f"{field}: {message}", fields=wrong)


def _checked(blocks: Any) -> Content:
    content = parse(blocks)
    check_runs(content)
    return content


def _stored(content: Content) -> list[Any]:
    found: list[Any] = content.model_dump(mode="json")["blocks"]
    return found


def _valid(title: str, description: str, blocks: Any, *, check: bool = True) -> tuple[str, str, list[Any]]:
    """What is stored. Raises UserError with every wrong field. `check`: the blocks are new."""
    wrong: dict[str, str] = {}
    title, description = title.strip(), description.strip()
    if not title or len(title) > MAX_TITLE:
        wrong["title"] = f"a title has 1 to {MAX_TITLE} characters; found {len(title)}"
    if len(description) > MAX_DESCRIPTION:
        wrong["description"] = f"at most {MAX_DESCRIPTION} characters; found {len(description)}"
    stored: list[Any] = []
    try:
        check_text("title", title)
        check_text("description", description)
        stored = _stored(_checked(blocks)) if check else list(blocks)
    except UserError as error:
        wrong |= error.fields
    if wrong:
        field, message = next(iter(wrong.items()))
        raise UserError(field, f"{field}: {message.removeprefix(f'{field}: ')}", fields=wrong)
    return title, description, stored
