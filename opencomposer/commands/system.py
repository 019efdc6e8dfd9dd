"""Workers, what they and their hosts use (CPU, memory, network, disk and GPU), and what processes of a run log."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opencomposer.nouns import Noun
from opencomposer.session import Session

PANEL = "Monitoring"
WORKER_COLUMNS = ("worker", "kind", "runs", "cpu", "memory", "host_cpu", "host_memory", "received", "sent", "gpus")
SERIES_COLUMNS = ("series", "mean", "low", "high", "latest", "points")
Since = Annotated[str | None, typer.Option(help="Begin, with its time zone: 2026-01-31T12:00:00Z.")]
Until = Annotated[str | None, typer.Option(help="End; now by default.")]
Resolution = Annotated[float | None, typer.Option(min=15, help="Seconds that a point covers at least.")]

workers = Noun("workers", "Processes, and what each and its host use now.", panel=PANEL)


@workers.command("list", example="")
def list_workers(session: Session) -> None:
    """List processes that reported within a minute: CPU in cores, memory in bytes, network in bytes per second."""
    found = session.api.get("/health/workers")
    if session.output.as_json:
        session.output.json(found)
        return
    session.output.rows([{**one, "gpus": _gpus(one["gpus"])} for one in found], WORKER_COLUMNS)


def _gpus(gpus: list[dict[str, Any]]) -> str:
    """One word for each GPU: `0: 87%`."""
    words = [f"{one['index']}: {'?' if (share := one['utilisation']) is None else f'{share:.0%}'}" for one in gpus]
    return ", ".join(words)


usage = Noun("usage", "CPU, memory, network, disk and GPU use over time.", panel=PANEL)


@usage.command("list", example="--since 2026-01-31T12:00:00Z --resolution 60")
def list_usage(
    session: Session,
    since: Since = None,
    until: Until = None,
    resolution: Resolution = None,
    worker: Annotated[str | None, typer.Option(help="Of this process and its host alone.")] = None,
) -> None:
    """Show what all workers used, in the last hour by default. --json has every point."""
    query = {"since": since, "until": until, "resolution": resolution, "worker": worker}
    _show(session, session.api.get("/health/usage", query))


@usage.command("get", example="3 --json")
def get_usage(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ID")],
    since: Since = None,
    until: Until = None,
    resolution: Resolution = None,
) -> None:
    """Show what the workers of a run used, over the whole run by default. --json has every point."""
    query = {"since": since, "until": until, "resolution": resolution}
    _show(session, session.api.get("/runs/{run_id}/system/usage", query, run_id=pk))


def _show(session: Session, found: dict[str, Any]) -> None:
    if session.output.as_json:
        session.output.json(found)
        return
    rows = [
        {
            "series": key,
            "mean": sum(one["mean"] * one["count"] for one in points) / sum(one["count"] for one in points),
            "low": min(one["low"] for one in points),
            "high": max(one["high"] for one in points),
            "latest": points[-1]["mean"],
            "points": len(points),
        }
        for key, points in found["series"].items()
        if points
    ]
    session.output.rows(rows, SERIES_COLUMNS)


logs = Noun("logs", "Log lines of a run's processes.", panel=PANEL)
logs.lists(
    "/runs/{run_id}/logs/lines",
    ("at", "level", "process", "message"),
    "List log lines of a run, newest first; --level includes more severe ones.",
    filters=("q", "level", "process"),
    example="3 --q checkpoint --level warning",
)

NOUNS = (workers, usage, logs)
