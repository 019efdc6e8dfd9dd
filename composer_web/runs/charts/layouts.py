"""Which panels the charts page of a run shows: of the run itself, of its project, of the installation, or the built-in ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from django.db import transaction
from django.db.models import F, Q
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from composer_web.accounts.models import Role, User
from composer_web.accounts.services import audit
from composer_web.core.errors import Denied, UserError, worded
from composer_web.runs import metrics
from composer_web.runs.charts.panels import Panel, check_keys, headline
from composer_web.runs.models import ChartLayout, DefaultChartLayout, Run

MAX_PANELS = 60
MAX_KEYS = 24
"""Metrics of one panel: the widest built-in one with all members of its families."""
Scope = Literal["run", "project", "installation"]
SCOPES: tuple[str, ...] = get_args(Scope)
Key = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[\w./ -]+$")]


class PanelShape(BaseModel):
    """What a panel draws, and how large."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1, max_length=80)
    keys: tuple[Key, ...] = Field(min_length=1, max_length=MAX_KEYS)
    size: Literal[1, 2, 3] = Field(default=1, description="Width in columns of the grid")
    height: Literal[1, 2, 3] = Field(default=1, description="Height of the plot: 1 is the usual one")


class PanelSpec(PanelShape):
    """One panel of a charts page: its shape, and where it stands."""

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
        raise UserError(path, f"{_place(panels, first['loc'])}: {worded(first)}") from error


def _place(panels: Any, location: tuple[int | str, ...]) -> str:
    """The panel by its title, and the field; what has no title by its number."""
    if len(location) > 1 and isinstance(location[1], int) and isinstance(panels[location[1]], dict):
        title = panels[location[1]].get("title") or f"panel {location[1] + 1}"
        return f"{title}: {'.'.join(map(str, location[2:]))}"
    return ".".join(map(str, location))


def new_panel(run: Run, *, title: str, keys: Sequence[str], section: str = "") -> Panel:
    """A panel to be added to the grid. Raises UserError, also for a metric that nobody knows."""
    spec = {"title": title or ", ".join(keys)[:80], "keys": keys, "section": section}
    (panel,) = parse([spec]).panels
    check_keys(panel.keys, metrics.names(run))
    return arrange([panel], headline(run.kind, run.latest))[0]


def _scope(run: Run) -> dict[str, Any]:
    return {"project_id": run.project_id, "kind": run.kind}


def of_run(run: Run) -> tuple[Layout | None, Scope | Literal["default"]]:
    """The layout in force and what it belongs to. None: the built-in panels. Two queries at most."""
    rows = ChartLayout.objects.filter(Q(run=run) | Q(run=None), **_scope(run))
    found = rows.order_by(F("run").desc(nulls_last=True)).first()
    if found is not None:
        return Layout.model_validate({"panels": found.panels}), "run" if found.run_id else "project"
    default = DefaultChartLayout.objects.filter(kind=run.kind).first()
    if default is not None:
        return Layout.model_validate({"panels": default.panels}), "installation"
    return None, "default"


def panels_of(run: Run) -> list[Panel]:
    """The panels of the run's charts page: pinned ones first, then section by section."""
    return arranged(run, of_run(run)[0])


def arranged(run: Run, layout: Layout | None) -> list[Panel]:
    """The panels of a layout for this run; None: the built-in ones."""
    built_in = headline(run.kind, run.latest)
    return arrange(layout.panels, built_in) if layout else built_in


def arrange(specs: Sequence[PanelSpec], built_in: Iterable[Panel]) -> list[Panel]:
    """Panels of a layout. Metrics of a built-in panel keep its labels and its second axis."""
    sections = list(dict.fromkeys(spec.section for spec in specs))
    order = sorted(specs, key=lambda spec: (not spec.pinned, 0 if spec.pinned else sections.index(spec.section)))
    return [
        replace(panel, pinned=spec.pinned, section="" if spec.pinned else spec.section)
        for spec, panel in zip(order, shaped(order, built_in), strict=True)
    ]


def shaped(shapes: Iterable[PanelShape], built_in: Iterable[Panel]) -> list[Panel]:
    """A panel of each shape, in their order."""
    known = {frozenset(panel.shown): panel for panel in built_in}
    return [
        replace(
            known.get(frozenset(one.keys)) or Panel(one.title, one.keys),
            title=one.title,
            size=one.size,
            height=one.height,
        )
        for one in shapes
    ]


@transaction.atomic
def save(*, run: Run, scope: Scope, layout: Layout, actor: User) -> None:
    """Keep a layout for the run; for all runs of its kind in its project that have none of their own; or for those of
    every project that has none. Raises Denied."""
    kept = {"panels": layout.model_dump(mode="json")["panels"], "changed_by": actor}
    if scope == "installation":
        _check_admin(actor)
        DefaultChartLayout.objects.update_or_create(kind=run.kind, defaults=kept)
    else:
        ChartLayout.objects.update_or_create(**_scope(run), run=run if scope == "run" else None, defaults=kept)
    audit(actor=actor, action="run.charts", target=f"run:{run.pk}", scope=scope, panels=len(layout.panels))


@transaction.atomic
def reset(*, run: Run, scope: Scope, actor: User) -> None:
    """Delete the layout of a scope: the one behind it is shown again. Idempotent. Raises Denied."""
    if scope == "installation":
        _check_admin(actor)
        removed, _ = DefaultChartLayout.objects.filter(kind=run.kind).delete()
    else:
        removed, _ = ChartLayout.objects.filter(**_scope(run), run=run if scope == "run" else None).delete()
    if removed:
        audit(actor=actor, action="run.charts_reset", target=f"run:{run.pk}", scope=scope)


def may_set_default(actor: User) -> bool:
    """Whether this person decides for the whole installation: an admin of it, not of a project only."""
    return actor.role == Role.ADMIN and actor.may(Role.ADMIN)


def _check_admin(actor: User) -> None:
    if not may_set_default(actor):
        raise Denied(
            "panels of the whole installation are for its admins; save them for the run or for the project instead"
        )
