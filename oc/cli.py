"""oc: everything of the product, from repositories to what production serves, from a terminal or a script."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from oc import (
    alerting,
    benchmark,
    datasets,
    drafting,
    endpoints,
    everything,
    exports,
    governing,
    interchange,
    labels,
    measuring,
    oversight,
    planning,
    saved,
    serving,
    suites,
    supply,
)
from oc.client import ApiError, Client, Unreachable
from oc.follow import FollowTimeout, follow
from oc.grammar import Grammar, Handler, given, optional
from oc.launch import UsageError, configuration, fields, starting
from oc.settings import DEFAULT_URL, SettingsError, keep, settings
from oc.show import Output
from oc.waiting import Ended

RUN_COLUMNS = ("id", "name", "state", "kind", "step", "steps_total", "policy_in", "tags", "created_by")
ROLLOUT_COLUMNS = (
    "id",
    "run_id",
    "task",
    "sample",
    "state",
    "verdict",
    "reward",
    "turns",
    "policy_tokens",
    "stop_reason",
)
POLICY_COLUMNS = ("name", "kind", "newest_version", "checkpoint_count", "parent", "run_id", "description")
RUN_ACTIONS = ("start", "pause", "resume", "stop", "archive", "restore")
RUN_FILTERS = ("q", "state", "kind", "policy", "tag", "by", "sweep", "pass1", "reward", "since", "archived")
ROLLOUT_FILTERS = (
    *("run", "evaluation", "task", "verdict", "stop_reason", "version", "label", "text", "finding", "quarantined"),
    *("reward_min", "reward_max", "tool_errors_min", "tool_errors_max", "turns_min", "turns_max"),
    *("tokens_min", "tokens_max", "step_min", "step_max"),
)
HIT_COLUMNS = ("turn", "where", "before", "match", "after")
WHOLE = ("html", "jsonl")
"""Forms of a trajectory that leave as files, with all that is in it."""
GROUP_COLUMNS = ("id", "run_id", "evaluation_id", "task", "state", "size", "passed", "mean_reward", "consumed_step")
GROUP_FILTERS = ("run", "evaluation", "state")


def grammar(top: Grammar) -> dict[str, Handler]:
    config = top.nouns.add_parser("config", help="keep the address and a token for this user", parents=[top.common])
    config.add_argument("url", nargs="?", default=DEFAULT_URL)

    runs = top.noun("runs", "training jobs")
    runs.listing("runs", *RUN_FILTERS)
    runs.add("show", "everything of a run", "id")
    for name in RUN_ACTIONS:
        runs.add(name, f"{name} a run", "id")
    for name, words in (
        ("launch", "make a run from a file, and start it"),
        ("sweep", "make runs that differ in fields"),
    ):
        made = runs.add(name, words)
        starting(made)
        made.add_argument("--draft", action="store_true", help="do not start")
        made.add_argument("--dry-run", action="store_true", help="check and say what would run; make nothing")
        if name == "launch":
            made.add_argument("--parent", type=int, help="run that it is told against")
            made.add_argument("--follow", action="store_true", help="stay until it has ended")
        else:
            made.add_argument("--vary", action="append", required=True, metavar="stage.steps=20,40")
            made.add_argument("--mode", choices=["grid", "list"], default="grid")
    for name in ("follow", "launch"):
        made = runs.add(name, "watch a run until it has ended", "id") if name == "follow" else runs[name]
        made.add_argument("--metric", action="append", default=[], help="may be repeated; reward/mean and loss/train")
        made.add_argument("--timeout", type=float, default=86_400.0, help="seconds")
    runs.add("tag", "the tags of a run from now on", "id").add_argument("tags", nargs="*")
    runs.add("note", "the notes of a run", "id", "text")
    out = runs.add("export", "a table of a run, or its configuration", "id")
    out.add_argument("what", choices=exports.OF_RUN)
    out.add_argument("--format", choices=["jsonl", "csv", "parquet", "yaml", "toml"])
    out.add_argument("-o", "--output", default="-", help="file; - is standard output")
    runs.add("reward", "the reward in force", "id")
    runs.add("set-reward", "another one for a live run, from a JSON file (- is standard input)", "id", "file")

    rollouts = top.noun("rollouts", "attempts at tasks")
    rollouts.listing("rollouts", *ROLLOUT_FILTERS)
    rollouts.add("show", "one rollout", "id")
    found = rollouts.add("tokens", "what is known of the tokens of a turn or a segment, number by number", "id")
    optional(found, "turn", "segment", "at", kind=int)
    rollouts.add("search", "where a text is in one", "id", "text")
    out = rollouts.add("export", "a trajectory, one JSON object a turn, or as another form has it", "id")
    out.add_argument(
        "--format",
        choices=(*WHOLE, *interchange.ROLLOUT_FORMATS),
        help="html: a page that needs no server; jsonl: everything, nothing cut; the others are other projects'",
    )
    out.add_argument("--tokens", action="store_true", help="with the tokens of its segments")
    out.add_argument("-o", "--output", default="-")

    groups = top.noun("groups", "the attempts at one prompt")
    groups.listing("groups")
    optional(groups["list"], "run", "evaluation", kind=int)
    optional(groups["list"], "state")
    groups.add("show", "one of them with its rollouts", "id")
    groups.add("compare", "what its rollouts weigh in training, and where their ways part", "id")

    policies = top.noun("policies", "lineages of weights")
    policies.listing("policies")
    policies.add("show", "one of them", "name")
    policies.add("measurements", "what one scored on codebases, with others on the same text", "name")
    measuring.grammar(policies)
    return {"runs": _runs, "rollouts": _rollouts, "groups": _groups, "policies": _policies}


def whole() -> tuple[argparse.ArgumentParser, dict[str, Handler]]:
    """The whole command line, and what carries each noun out."""
    top = Grammar(__doc__)
    handlers = grammar(top)
    for part in (
        *(supply, suites, drafting, interchange, datasets, benchmark, labels, endpoints, planning, saved, serving),
        *(alerting, governing, oversight, exports, everything),
    ):
        handlers |= part.grammar(top)
    return top.parser, handlers


def main(arguments: Sequence[str] | None = None, *, client: Client | None = None, out: TextIO | None = None) -> int:
    """The exit status: 0, 1 for what the API refused or what was followed and failed, 2 for a wrong command line, 3 when
    nothing answers."""
    parser, handlers = whole()
    options = parser.parse_args(arguments)
    output = Output(as_json=options.json, out=out)
    try:
        if options.noun == "config":
            token = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline().strip()
            path = keep(url=options.url, token=token)
            output.said(f"kept in {path}", {"file": str(path)})
            return 0
        if client is None:
            found = settings()
            client = Client(found.url, found.token, project=options.project or found.project)
        with client:
            handlers[options.noun](client, options, output)
        return 0
    except ApiError as error:
        return _failed(
            options, 1, error.message, {"code": error.code, "message": error.message, "fields": error.fields}
        )
    except Ended as error:
        return _failed(options, 1, str(error), {"code": "failed", "message": str(error)})
    except (UsageError, SettingsError) as error:
        return _failed(options, 2, str(error), {"code": "usage", "message": str(error)})
    except (Unreachable, FollowTimeout) as error:
        return _failed(options, 3, str(error), {"code": "unreachable", "message": str(error)})
    except KeyboardInterrupt:
        return 130


def _failed(options: argparse.Namespace, status: int, words: str, data: dict[str, Any]) -> int:
    more = [f"\n  {name}: {text}" for name, text in data.get("fields", {}).items() if text not in words]
    sys.stderr.write(json.dumps({"error": data}) + "\n" if options.json else f"oc: {words}{''.join(more)}\n")
    return status


def _runs(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.runs.list(limit=options.limit, **given(options, RUN_FILTERS)), RUN_COLUMNS)
        case "show":
            output.one(client.runs.get(options.id))
        case "launch":
            _launch(client, options, output)
        case "sweep":
            _sweep(client, options, output)
        case "follow":
            _follow(client, options.id, options, output)
        case "tag":
            output.rows([client.runs.label(options.id, tags=options.tags)], RUN_COLUMNS)
        case "note":
            output.rows([client.runs.label(options.id, notes=options.text)], RUN_COLUMNS)
        case "export":
            with exports.target(options.output, output.out) as target:
                exports.of_run(client, options.id, options.what, options.format, target)
        case "reward":
            output.one(client.runs.get_reward(options.id))
        case "set-reward":
            told = client.runs.change_reward(options.id, everything.read(options.file))
            output.said(told.message, told.model_dump(mode="json"))
        case action:
            output.rows([client.runs.act(options.id, action)], RUN_COLUMNS)


def _launch(client: Client, options: argparse.Namespace, output: Output) -> None:
    config = configuration(client, options)
    if options.dry_run:
        output.one(client.runs.validate(config, parent=options.parent))
        return
    run = client.runs.create(config, start=not options.draft, parent=options.parent)
    if options.follow and not options.draft:
        output.streamed(f"run {run.id} is {run.state}", {"run": run.id, "state": run.state})
        _follow(client, run.id, options, output)
    else:
        output.rows([run], RUN_COLUMNS)


def _sweep(client: Client, options: argparse.Namespace, output: Output) -> None:
    config, varied = configuration(client, options), fields(options.vary)
    if options.dry_run:
        found = client.sweeps.preview(config=config, fields=varied, mode=options.mode)
        output.rows(found.runs, ("name", "values", "errors"))
        return
    sweep = client.sweeps.create(config=config, fields=varied, mode=options.mode, start=not options.draft)
    output.said(f"sweep {sweep.id}: {sweep.runs} runs of {sweep.name}", sweep.model_dump(mode="json"))


def _follow(client: Client, pk: int, options: argparse.Namespace, output: Output) -> None:
    names = options.metric or ["reward/mean", "loss/train"]
    for seen in follow(client, pk, metrics=names, timeout=options.timeout):
        output.streamed(seen.words, seen.data)


def _rollouts(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.rollouts.list(limit=options.limit, **given(options, ROLLOUT_FILTERS)), ROLLOUT_COLUMNS)
        case "show":
            output.one(client.rollouts.get(options.id))
        case "tokens":
            output.one(client.rollouts.get_tokens(options.id, **given(options, ("turn", "segment", "at"))))
        case "search":
            output.rows(client.rollouts.search(options.id, q=options.text).hits, HIT_COLUMNS)
        case _ if options.format is not None:
            if options.tokens:
                raise UsageError("--tokens go with our own form only; leave out --format")
            if options.format in WHOLE:
                with exports.target(options.output, output.out) as target:
                    client.rollouts.get_whole(options.id, options.format, target)
                return
            interchange.document(client.tasks.export_rollout(options.id, options.format), options, output)
        case _:
            with exports.target(options.output, output.out) as target:
                exports.trajectory(client, options.id, target, tokens=options.tokens)


def _groups(client: Client, options: argparse.Namespace, output: Output) -> None:
    if options.verb == "list":
        output.rows(client.groups.list(limit=options.limit, **given(options, GROUP_FILTERS)), GROUP_COLUMNS)
    elif options.verb == "compare":
        output.one(client.groups.compare(options.id))
    else:
        output.one(client.groups.get(options.id))


def _policies(client: Client, options: argparse.Namespace, output: Output) -> None:
    if options.verb == "list":
        output.rows(client.policies.list(limit=options.limit), POLICY_COLUMNS)
    elif options.verb == "measurements":
        output.rows(client.policies.list_measurements(options.name), measuring.MEASUREMENT_COLUMNS)
    elif options.verb in measuring.VERBS:
        measuring.carry_out(client, options, output)
    else:
        output.one(client.policies.get(options.name))
