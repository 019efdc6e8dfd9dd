"""Charts: panels of a run's charts page, and reports."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from opencomposer.errors import UsageError
from opencomposer.files import read_json
from opencomposer.nouns import Noun, fields
from opencomposer.session import Session

PANEL = "Training"
PANEL_COLUMNS = ("title", "keys", "size", "height", "pinned", "section")
REPORT_COLUMNS = ("id", "title", "description", "author", "version", "updated_at")
RunId = Annotated[int, typer.Argument(metavar="ID")]
PanelScope = Annotated[
    Literal["run", "project", "installation"],
    typer.Option(help="Of this run, of all runs of its kind in the project, or in every project (admins)."),
]

panels = Noun("panels", "Panels of a run's charts page.", panel=PANEL)


@panels.command("get", example="12")
def get_panels(session: Session, run_id: RunId) -> None:
    """List the panels; --json is what `panels update` reads."""
    session.output.rows(session.api.get("/runs/{run_id}/charts/panels", run_id=run_id)["panels"], PANEL_COLUMNS)


@panels.command("update", example="12 panels.json --scope project")
def update_panels(
    session: Session,
    run_id: RunId,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON list as `panels get --json` prints it.")],
    scope: PanelScope = "run",
) -> None:
    """Save the panels of a run, of its project, or of the installation."""
    body = {"scope": scope, "panels": read_json(file)}
    session.output.rows(session.api.put("/runs/{run_id}/charts/panels", body, run_id=run_id)["panels"], PANEL_COLUMNS)


@panels.command("delete", example="12")
def delete_panels(session: Session, run_id: RunId, scope: PanelScope = "run") -> None:
    """Delete the panels of a scope; those behind it are shown again."""
    session.api.delete("/runs/{run_id}/charts/panels/{scope}", run_id=run_id, scope=scope)
    session.output.said(f"panels of {scope} deleted", {"deleted": scope})


reports = Noun("reports", "Pages of panels and text about runs.", panel=PANEL)
reports.lists("/reports", REPORT_COLUMNS, "List reports, newest first.")
reports.gets(
    "/reports/{report_id}", "Show a report; --json has its blocks, which `reports update` reads.", example="2 --json"
)
reports.deletes("/reports/{report_id}", "Delete a report. Its runs stay.", example="2")

Blocks = Annotated[
    str | None,
    typer.Option("--blocks", metavar="FILE", help="JSON list of blocks: text, and panels with metrics and runs."),
]


@reports.command("create", example="'Reward of the new tasks' --blocks blocks.json")
def create_report(session: Session, title: str, blocks: Blocks = None, description: str | None = None) -> None:
    """Create a report."""
    body = fields(title=title, description=description, blocks=read_json(blocks) if blocks else None)
    session.output.rows([session.api.post("/reports", body)], REPORT_COLUMNS)


@reports.command("update", example="2 --title 'Reward, revised' --blocks blocks.json")
def update_report(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ID")],
    title: str | None = None,
    blocks: Blocks = None,
    description: str | None = None,
) -> None:
    """Change a report. What is not given stays."""
    body = fields(title=title, description=description, blocks=read_json(blocks) if blocks else None)
    if not body:
        raise UsageError("name what to change: --title, --description or --blocks")
    session.output.rows([session.api.patch("/reports/{report_id}", body, report_id=pk)], REPORT_COLUMNS)


NOUNS = (panels, reports)
