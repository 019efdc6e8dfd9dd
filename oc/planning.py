"""oc templates, sweeps: what runs are started from, and runs that differ in fields."""

from __future__ import annotations

import argparse
import json

from oc.client import Client
from oc.grammar import Grammar, Handler, given, optional
from oc.launch import UsageError, configuration, starting
from oc.models import SweepDetail, TemplateOut
from oc.show import Output

TEMPLATE_COLUMNS = ("id", "name", "description", "created_by")
SWEEP_COLUMNS = ("id", "name", "mode", "runs", "live", "ended", "created_by", "created_at")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("templates", "configurations of the team")
    group.listing("templates")
    group.add("show", "one of them with its configuration", "name")
    made = group.add("save", "keep a configuration under a name", "name")
    starting(made)
    optional(made, "description")
    made = group.add("change", "another name, description or configuration", "name")
    starting(made)
    made.add_argument("--name", dest="called", help="its name from now on")
    optional(made, "description")
    group.add("delete", "delete one; runs that were started from it stay", "name")

    group = top.noun("sweeps", "runs that differ in fields; oc runs sweep makes them")
    group.listing("sweeps")
    group.add("show", "one of them with its runs", "id")
    return {"templates": _templates, "sweeps": _sweeps}


def _templates(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.templates.list()[: options.limit], TEMPLATE_COLUMNS)
        case "show":
            output.one(_named(client, options.name))
        case "save":
            made = client.templates.create(
                name=options.name, config=configuration(client, options), **given(options, ("description",))
            )
            output.rows([made], TEMPLATE_COLUMNS)
        case "change":
            output.rows([_changed(client, options)], TEMPLATE_COLUMNS)
        case _:
            found = _named(client, options.name)
            client.templates.delete(found.id)
            output.said(f"deleted {found.name}", {"deleted": found.id})


def _named(client: Client, name: str) -> TemplateOut:
    """Raises UsageError."""
    known = {one.name: one for one in client.templates.list()}
    if name not in known:
        raise UsageError(f"there is no template {name!r}; there are: {', '.join(known) or 'none yet'}")
    return known[name]


def _changed(client: Client, options: argparse.Namespace) -> TemplateOut:
    """`--set` alone changes settings of the template itself. Raises UsageError."""
    found = _named(client, options.name)
    changes = given(options, ("description",)) | ({"name": options.called} if options.called else {})
    if options.set and not (options.file or options.preset or options.template):
        options.template = options.name
    if options.file or options.preset or options.template:
        changes["config"] = configuration(client, options)
    if not changes:
        raise UsageError("say what to change: a file, --set, --name or --description")
    return client.templates.change(found.id, **changes)


def _sweeps(client: Client, options: argparse.Namespace, output: Output) -> None:
    if options.verb == "list":
        output.rows(client.sweeps.list(limit=options.limit), SWEEP_COLUMNS)
    else:
        _sweep(client.sweeps.get(options.id), output)


def _sweep(found: SweepDetail, output: Output) -> None:
    """The sweep, and a row a run: what it varies, and what its newest metrics are."""
    if output.as_json:
        output.one(found)
        return
    output.rows([found.sweep], SWEEP_COLUMNS)
    output.line("")
    metrics = sorted({name for run in found.runs for name in run.latest})
    columns = ("id", "state", "step", *found.sweep.fields, *metrics)
    table = [
        [
            *(str(run.id), run.state, f"{run.step}/{run.steps_total}"),
            *(value if isinstance(value, str) else json.dumps(value) for value in run.values),
            *(f"{run.latest[name]:.4g}" if name in run.latest else "-" for name in metrics),
        ]
        for run in found.runs
    ]
    output.table(columns, table)
