"""Runs, what they are started from, and saved views of the lists."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer

from opencomposer.client import Client
from opencomposer.errors import UsageError
from opencomposer.files import read_json
from opencomposer.nouns import Noun, Timeout, fields
from opencomposer.run_files import Changes, ConfigFile, Preset, Template, configuration, varied
from opencomposer.session import Session
from opencomposer.waiting import follow_run

PANEL = "Training"
RUN_COLUMNS = ("id", "name", "state", "kind", "step", "steps_total", "policy_in", "tags", "created_by")
RUN_FILTERS = ("q", "state", "kind", "policy", "tag", "by", "sweep", "pass1", "reward", "since", "archived")
TEMPLATE_COLUMNS = ("id", "name", "description", "created_by")
SWEEP_COLUMNS = ("id", "name", "mode", "runs", "live", "ended", "created_by", "created_at")
VIEW_COLUMNS = ("id", "table", "name", "query", "shared", "owner")
RUN_SECONDS = 86_400.0
"""Default of `--timeout` for runs."""

RunId = Annotated[int, typer.Argument(metavar="ID")]
Metrics = Annotated[
    list[str] | None,
    typer.Option("--metric", help="Metric that --follow shows; may be repeated (reward/mean and loss/train)."),
]
FollowRun = Annotated[bool, typer.Option("--follow", help="Show its metrics and events until it has ended.")]

runs = Noun("runs", "Training jobs.", panel=PANEL)
runs.lists("/runs", RUN_COLUMNS, "List runs, newest first.", filters=RUN_FILTERS, example="--state running --json")


@runs.command("get", example="3 --follow --metric reward/mean")
def get_run(
    session: Session,
    pk: RunId,
    follow: FollowRun = False,
    metric: Metrics = None,
    timeout: Timeout = RUN_SECONDS,
    config: Annotated[
        Literal["yaml", "toml"] | None, typer.Option(help="Print its configuration alone, as text.")
    ] = None,
) -> None:
    """Show a run with its configuration, or follow it until it has ended."""
    if config:
        found = session.api.get("/runs/{run_id}/config", {"format": config}, run_id=pk)
        session.output.said(found["text"].rstrip("\n"), found)
    elif follow:
        show_progress(session, pk, metric, timeout)
    else:
        session.output.one(session.api.get("/runs/{run_id}", run_id=pk))


@runs.command("create", example="run.yaml --set stage.steps=20 --start --follow")
def create_run(
    session: Session,
    file: ConfigFile = None,
    preset: Preset = None,
    template: Template = None,
    changes: Changes = None,
    parent: Annotated[int | None, typer.Option(help="Run that it is compared with.")] = None,
    start_after: Annotated[
        int | None, typer.Option(metavar="ID", help="Run that must finish first; it starts from that run's policy.")
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Start it at once; otherwise it is a draft.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check it and show the plan; create nothing.")] = False,
    follow: FollowRun = False,
    metric: Metrics = None,
    timeout: Timeout = RUN_SECONDS,
) -> None:
    """Create a run from a file, preset or template."""
    if follow and not start:
        raise UsageError("--follow: a draft does not run; add --start")
    config = configuration(session.api, file=file, preset=preset, template=template, changes=changes)
    if dry_run:
        session.output.one(session.api.post("/runs/validate", config, params={"parent": parent}))
        return
    made = session.api.post("/runs", config, params={"start": start, "parent": parent, "start_after": start_after})
    if follow:
        session.output.streamed(f"run {made['id']} is {made['state']}", {"run": made["id"], "state": made["state"]})
        show_progress(session, made["id"], metric, timeout)
    else:
        session.output.rows([made], RUN_COLUMNS)


@runs.command("update", example='3 --tags baseline,ours --notes "learning rate doubled"')
def update_run(
    session: Session,
    pk: RunId,
    tags: Annotated[str | None, typer.Option(help="Its tags, separated by commas; empty removes all.")] = None,
    notes: Annotated[str | None, typer.Option(help="Its notes.")] = None,
    archived: Annotated[bool | None, typer.Option(help="Hide it from lists, or show it again.")] = None,
) -> None:
    """Change the tags or notes of a run, or archive it."""
    labels = None if tags is None else [one.strip() for one in tags.split(",") if one.strip()]
    changes = fields(tags=labels, notes=notes)
    if not changes and archived is None:
        raise UsageError("name what to change: --tags, --notes or --archived")
    if changes:
        made = session.api.patch("/runs/{run_id}", changes, run_id=pk)
    if archived is not None:
        action = "archive" if archived else "restore"
        made = session.api.post("/runs/{run_id}/{action}", run_id=pk, action=action)
    session.output.rows([made], RUN_COLUMNS)


@runs.command("start", example="3")
def start_run(session: Session, pk: RunId) -> None:
    """Start a draft, or resume a paused run."""
    state = session.api.get("/runs/{run_id}", run_id=pk)["state"]
    action = "start" if state == "draft" else "resume"
    session.output.rows([session.api.post("/runs/{run_id}/{action}", run_id=pk, action=action)], RUN_COLUMNS)


@runs.command("stop", example="3 --pause")
def stop_run(
    session: Session,
    pk: RunId,
    pause: Annotated[bool, typer.Option("--pause", help="Keep it: `runs start` resumes it.")] = False,
) -> None:
    """Stop a run for good, or pause it."""
    action = "pause" if pause else "stop"
    session.output.rows([session.api.post("/runs/{run_id}/{action}", run_id=pk, action=action)], RUN_COLUMNS)


def show_progress(session: Session, pk: int, metrics: list[str] | None, timeout: float) -> None:
    names = metrics or ["reward/mean", "loss/train"]
    for words, data in follow_run(session.api, pk, metrics=names, timeout=timeout):
        session.output.streamed(words, data)


files = Noun("files", "What runs keep on disk: checkpoints, weight versions, trajectories.", panel=PANEL)
FILE_COLUMNS = ("kind", "items", "bytes", "deleted", "freed", "kept", "refused")
DELETION_COLUMNS = ("id", "kind", "state", "items", "bytes", "by", "created_at", "cause")
Final = Annotated[bool, typer.Option("--final", help="Also the newest checkpoint.")]
AnnotatedOnes = Annotated[
    bool, typer.Option("--annotated", help="Also trajectories that people annotated, if nothing else needs them.")
]


class FileKind(StrEnum):
    CHECKPOINTS = "checkpoints"
    VERSIONS = "versions"
    TRAJECTORIES = "trajectories"


@files.command("get", example="3")
def get_files(session: Session, pk: RunId, final: Final = False, annotated: AnnotatedOnes = False) -> None:
    """Show the files of a run: their bytes, what a deletion would free and keep, and past deletions."""
    found = session.api.get("/runs/{run_id}/files", {"final": final, "annotated": annotated}, run_id=pk)
    if session.output.as_json:
        session.output.one(found)
        return
    session.output.rows(found["files"], FILE_COLUMNS)
    if found["deletions"]:
        session.output.line("")
        session.output.rows(found["deletions"], DELETION_COLUMNS)


@files.command("delete", example="3 checkpoints trajectories --dry-run")
def delete_files(
    session: Session,
    pk: RunId,
    kinds: Annotated[list[FileKind], typer.Argument(help="What to delete.", metavar="KIND...")],
    final: Final = False,
    annotated: AnnotatedOnes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go; delete nothing.")] = False,
) -> None:
    """Delete files of a run that has ended, for good. Its rows, verdicts, metrics and labels stay."""
    options = {"final": final, "annotated": annotated}
    if dry_run:
        found = session.api.get("/runs/{run_id}/files", options, run_id=pk)["files"]
        session.output.rows([one for one in found if one["kind"] in kinds], FILE_COLUMNS)
        return
    named = {"kinds": [kind.value for kind in kinds], **options}
    made = session.api.delete("/runs/{run_id}/files", named, run_id=pk)
    session.output.rows(made, DELETION_COLUMNS)


probes = Noun("probes", "Three tasks played as a run would, before it starts.", panel=PANEL)


@probes.command("create", example="3")
def create_probe(session: Session, pk: RunId) -> None:
    """Play three tasks as a run would; `evaluations get ID --follow` shows pass rate, stop reasons and tokens."""
    made = session.api.post("/runs/{run_id}/probe", run_id=pk)
    session.output.rows([made], ("id", "policy", "version", "suite", "state"))


insights = Noun("insights", "What the detectors see in a run, with remedies.", panel=PANEL)


@insights.command("list", example="3")
def list_insights(session: Session, pk: RunId) -> None:
    """List what holds now: why it learns little, waits, or loses rollouts."""
    found = session.api.get("/runs/{run_id}/insights", run_id=pk)
    session.output.rows(found, ("key", "level", "message", "remedy", "url"))


rewards = Noun("rewards", "The reward of a live run.", panel=PANEL)
rewards.gets("/runs/{run_id}/reward", "Show the reward in force.", example="3 --json")


@rewards.command("update", example="3 reward.json")
def update_reward(
    session: Session,
    pk: RunId,
    file: Annotated[str, typer.Argument(help="JSON file as `rewards get --json` prints it; - is standard input.")],
) -> None:
    """Replace the reward of a live run."""
    told = session.api.put("/runs/{run_id}/reward", read_json(file), run_id=pk)
    session.output.said(told["message"], told)


presets = Noun("presets", "Configurations that the product comes with.", panel=PANEL)
presets.lists("/runs/presets", ("key", "title", "description"), "List presets.", paged=False)

templates = Noun("templates", "Configurations of the team.", panel=PANEL)
templates.lists("/templates", TEMPLATE_COLUMNS, "List templates.", paged=False)


@templates.command("get", example="ours --json")
def get_template(session: Session, name: str) -> None:
    """Show a template with its configuration."""
    session.output.one(template_of(session.api, name))


@templates.command("create", example="ours run.yaml --set seed=7")
def create_template(
    session: Session,
    name: str,
    file: ConfigFile = None,
    preset: Preset = None,
    template: Template = None,
    changes: Changes = None,
    description: str | None = None,
) -> None:
    """Keep a configuration under a name."""
    config = configuration(session.api, file=file, preset=preset, template=template, changes=changes)
    made = session.api.post("/templates", fields(name=name, config=config, description=description))
    session.output.rows([made], TEMPLATE_COLUMNS)


@templates.command("update", example="ours --set seed=8 --description 'with seed 8'")
def update_template(
    session: Session,
    name: str,
    file: ConfigFile = None,
    preset: Preset = None,
    template: Template = None,
    changes: Changes = None,
    new_name: Annotated[str | None, typer.Option("--name", help="Rename it.")] = None,
    description: str | None = None,
) -> None:
    """Change a template. `--set` alone changes fields of its configuration."""
    found = template_of(session.api, name)
    changed: dict[str, Any] = fields(name=new_name, description=description)
    if changes and not (file or preset or template):
        template = name
    if file or preset or template:
        changed["config"] = configuration(session.api, file=file, preset=preset, template=template, changes=changes)
    if not changed:
        raise UsageError("name what to change: a file, --set, --name or --description")
    made = session.api.patch("/templates/{template_id}", changed, template_id=found["id"])
    session.output.rows([made], TEMPLATE_COLUMNS)


@templates.command("delete", example="ours")
def delete_template(session: Session, name: str) -> None:
    """Delete a template. Runs that were started from it stay."""
    found = template_of(session.api, name)
    session.api.delete("/templates/{template_id}", template_id=found["id"])
    session.output.said(f"deleted {name}", {"deleted": found["id"]})


def template_of(client: Client, name: str) -> dict[str, Any]:
    """Raises UsageError."""
    known = {one["name"]: one for one in client.get("/templates")}
    if name not in known:
        raise UsageError(f"there is no template {name!r}; there are: {', '.join(known) or 'none yet'}")
    return dict(known[name])


sweeps = Noun("sweeps", "Runs that differ in some fields.", panel=PANEL)
sweeps.lists("/sweeps", SWEEP_COLUMNS, "List sweeps, newest first.")


@sweeps.command("get", example="2")
def get_sweep(session: Session, pk: Annotated[int, typer.Argument(metavar="ID")]) -> None:
    """Show a sweep with a row for each run: what it varies, and its newest metrics."""
    found = session.api.get("/sweeps/{sweep_id}", sweep_id=pk)
    if session.output.as_json:
        session.output.one(found)
        return
    session.output.rows([found["sweep"]], SWEEP_COLUMNS)
    session.output.line("")
    metrics = sorted({name for run in found["runs"] for name in run["latest"]})
    table = [
        [
            *(str(run["id"]), run["state"], f"{run['step']}/{run['steps_total']}"),
            *(value if isinstance(value, str) else json.dumps(value) for value in run["values"]),
            *(f"{run['latest'][name]:.4g}" if name in run["latest"] else "-" for name in metrics),
        ]
        for run in found["runs"]
    ]
    session.output.table(("id", "state", "step", *found["sweep"]["fields"], *metrics), table)


@sweeps.command("create", example="run.yaml --vary stage.optimizer.learning_rate=3e-4,7e-4 --vary seed=1,2 --start")
def create_sweep(
    session: Session,
    vary: Annotated[list[str], typer.Option(metavar="stage.steps=20,40", help="Field and values; may be repeated.")],
    file: ConfigFile = None,
    preset: Preset = None,
    template: Template = None,
    changes: Changes = None,
    mode: Annotated[
        Literal["grid", "list"], typer.Option(help="All combinations, or the first values together, then the second.")
    ] = "grid",
    start: Annotated[bool, typer.Option("--start", help="Start its runs at once; otherwise they are drafts.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and list the runs; create nothing.")] = False,
) -> None:
    """Create all runs of a sweep."""
    config = configuration(session.api, file=file, preset=preset, template=template, changes=changes)
    body = {"config": config, "fields": varied(vary), "mode": mode}
    if dry_run:
        session.output.rows(session.api.post("/sweeps/preview", body)["runs"], ("name", "values", "errors"))
        return
    made = session.api.post("/sweeps", {**body, "start": start})
    session.output.said(f"sweep {made['id']}: {made['runs']} runs of {made['name']}", made)


views = Noun("views", "Saved views of the lists: their filters, order and columns.", panel=PANEL)
views.lists("/views", VIEW_COLUMNS, "List your views and shared ones.", filters=("table",), paged=False)
views.deletes("/views/{view_id}", "Delete a view of yours.", example="4")


@views.command("create", example="rollouts 'failed late' 'verdict=failed&sort=-turns' --shared")
def create_view(
    session: Session,
    table: Annotated[str, typer.Argument(help="runs, rollouts, tasks, evaluations, findings or annotations.")],
    name: str,
    query: Annotated[str, typer.Argument(help="What follows the ? of the page's address.")],
    shared: Annotated[bool, typer.Option("--shared", help="For everybody in the project.")] = False,
) -> None:
    """Save a view; yours of the same name is replaced."""
    made = session.api.post("/views", {"table": table, "name": name, "query": query, "shared": shared})
    session.output.rows([made], VIEW_COLUMNS)


NOUNS = (runs, sweeps, templates, presets, probes, insights, rewards, files, views)
