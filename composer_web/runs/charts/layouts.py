"""Which panels the charts page of a run shows: of the run itself, of its project for runs of its kind, or the built-in ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from django.db import transaction
from django.db.models import F, Q
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import UserError, worded
from composer_web.runs.charts.panels import Panel, headline
from composer_web.runs.models import ChartLayout, Run

MAX_PANELS = 60
Scope = Literal["run", "project"]
Key = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w./ -]+$")]


class PanelSpec(BaseModel):
    """One panel: its metrics, how many columns it spans, and where it stands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1, max_length=80)
    keys: tuple[Key, ...] = Field(min_length=1, max_length=8)
    size: Literal[1, 2, 3] = 1
    pinned: bool = Field(default=False, description="Before all sections")
    section: str = Field(default="", max_length=60)


class Layout(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    panels: tuple[PanelSpec, ...] = Field(min_length=1, max_length=MAX_PANELS)


def parse(panels: Any) -> Layout:
    """Raises UserError that names the panel and its field."""
    try:
        return Layout.model_validate({"panels": panels})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise UserError(path, f"{path}: {worded(first)}") from error


def _scope(run: Run) -> dict[str, Any]:
    return {"project_id": run.project_id, "kind": run.kind}


def of_run(run: Run) -> tuple[Layout | None, Scope | Literal["default"]]:
    """The layout in force and what it belongs to. None: the built-in panels. One query."""
    rows = ChartLayout.objects.filter(Q(run=run) | Q(run=None), **_scope(run))
    found = rows.order_by(F("run").desc(nulls_last=True)).first()
    if found is None:
        return None, "default"
    return Layout.model_validate({"panels": found.panels}), "run" if found.run_id else "project"


def panels_of(run: Run) -> list[Panel]:
    """The panels of the run's charts page: pinned ones first, then section by section."""
    layout, _ = of_run(run)
    built_in = headline(run.kind, run.latest)
    return arrange(layout.panels, built_in) if layout else built_in


def arrange(specs: Sequence[PanelSpec], built_in: Iterable[Panel]) -> list[Panel]:
    """Panels of a layout. Metrics of a built-in panel keep its labels and its second axis."""
    known = {frozenset(panel.shown): panel for panel in built_in}
    sections = list(dict.fromkeys(spec.section for spec in specs))
    order = sorted(specs, key=lambda spec: (not spec.pinned, 0 if spec.pinned else sections.index(spec.section)))
    return [
        replace(
            known.get(frozenset(spec.keys)) or Panel(spec.title, spec.keys),
            title=spec.title,
            size=spec.size,
            pinned=spec.pinned,
            section="" if spec.pinned else spec.section,
        )
        for spec in order
    ]


@transaction.atomic
def save(*, run: Run, scope: Scope, layout: Layout, actor: User) -> ChartLayout:
    """Keep a layout for the run, or for all runs of its kind in its project that have none of their own."""
    made, _ = ChartLayout.objects.update_or_create(
        **_scope(run),
        run=run if scope == "run" else None,
        defaults={"panels": layout.model_dump(mode="json")["panels"], "changed_by": actor},
    )
    audit(actor=actor, action="run.charts", target=f"run:{run.pk}", scope=scope, panels=len(layout.panels))
    return made


@transaction.atomic
def reset(*, run: Run, scope: Scope, actor: User) -> None:
    """Go back to the project's panels, or to the built-in ones. Idempotent."""
    rows = ChartLayout.objects.filter(**_scope(run), run=run if scope == "run" else None)
    if rows.delete()[0]:
        audit(actor=actor, action="run.charts_reset", target=f"run:{run.pk}", scope=scope)
