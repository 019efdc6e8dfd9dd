"""oc: runs, rollouts, suites, policies, evaluations and releases from a terminal or a script."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO, get_args

from oc import exports
from oc.client import ApiError, Client, RunAction, Unreachable
from oc.follow import FollowTimeout, follow
from oc.launch import UsageError, configuration, fields
from oc.settings import DEFAULT_URL, SettingsError, keep, settings
from oc.show import Output

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
SUITE_COLUMNS = ("name", "purpose", "task_count", "valid_count", "rejected_count", "description")
POLICY_COLUMNS = ("name", "kind", "newest_version", "checkpoint_count", "parent", "run_id", "description")
EVAL_COLUMNS = ("id", "policy", "version", "suite", "phase", "state", "groups_done", "groups_total")
RELEASE_COLUMNS = ("benchmark", "number", "suite", "evaluation_count", "notes")
TEMPLATE_COLUMNS = ("id", "name", "description", "created_by")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="oc", description=__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="answer in JSON")
    nouns = top.add_subparsers(dest="noun", required=True)

    def verbs(noun: str, words: str) -> Any:
        return nouns.add_parser(noun, help=words).add_subparsers(dest="verb", required=True)

    def verb(group: Any, name: str, words: str, *arguments: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = group.add_parser(name, help=words, parents=[common])
        for argument in arguments:
            made.add_argument(argument, type=int if argument in ("id", "number") else str)
        return made

    def listing(group: Any, noun: str, *filters: str) -> None:
        made = verb(group, "list", f"{noun}, newest first")
        made.add_argument("--limit", type=int, default=50)
        for name in filters:
            made.add_argument(f"--{name.replace('_', '-')}")

    config = nouns.add_parser("config", help="keep the address and a token for this user", parents=[common])
    config.add_argument("url", nargs="?", default=DEFAULT_URL)

    runs = verbs("runs", "training jobs")
    listing(runs, "runs", "q", "state", "kind", "policy", "tag", "by", "sweep", "archived")
    verb(runs, "show", "everything of a run", "id")
    for name in get_args(RunAction):
        verb(runs, name, f"{name} a run", "id")
    for name, words in (
        ("launch", "make a run from a file, and start it"),
        ("sweep", "make runs that differ in fields"),
    ):
        made = verb(runs, name, words)
        made.add_argument("file", nargs="?", help="YAML, TOML or JSON; - reads standard input")
        made.add_argument("--preset")
        made.add_argument("--template")
        made.add_argument("--set", action="append", default=[], metavar="stage.steps=5")
        made.add_argument("--draft", action="store_true", help="do not start")
        made.add_argument("--dry-run", action="store_true", help="check and say what would run; make nothing")
        if name == "launch":
            made.add_argument("--parent", type=int, help="run that it is told against")
            made.add_argument("--follow", action="store_true", help="stay until it has ended")
        else:
            made.add_argument("--vary", action="append", required=True, metavar="stage.steps=20,40")
            made.add_argument("--mode", choices=["grid", "list"], default="grid")
    for name in ("follow", "launch"):
        made = verb(runs, name, "watch a run until it has ended", "id") if name == "follow" else runs.choices[name]
        made.add_argument("--metric", action="append", default=[], help="may be repeated; reward/mean and loss/train")
        made.add_argument("--timeout", type=float, default=86_400.0, help="seconds")
    tag = verb(runs, "tag", "the tags of a run from now on", "id")
    tag.add_argument("tags", nargs="*")
    verb(runs, "note", "the notes of a run", "id", "text")
    out = verb(runs, "export", "metrics, rollouts or the configuration of a run", "id")
    out.add_argument("what", choices=exports.OF_RUN)
    out.add_argument("--format", choices=["jsonl", "csv", "yaml", "toml"])
    out.add_argument("-o", "--output", default="-", help="file; - is standard output")
    listing(verbs("templates", "configurations of the team"), "templates")

    rollouts = verbs("rollouts", "attempts at tasks")
    listing(rollouts, "rollouts", "run", "evaluation", "task", "verdict", "stop_reason", "version", "label")
    verb(rollouts, "show", "one rollout", "id")
    out = verb(rollouts, "export", "a trajectory, one JSON object a turn", "id")
    out.add_argument("--tokens", action="store_true", help="with the tokens of its segments")
    out.add_argument("-o", "--output", default="-")

    for noun, words in (("suites", "sets of task versions"), ("policies", "lineages of weights")):
        group = verbs(noun, words)
        listing(group, noun)
        verb(group, "show", "one of them", "name")

    evals = verbs("evals", "measurements of policies on suites")
    listing(evals, "evaluations", "run", "policy", "suite", "phase", "state")
    verb(evals, "show", "one evaluation", "id")
    made = verb(evals, "launch", "measure a policy", "policy", "suite")
    for name in ("tasks", "samples", "seed"):
        made.add_argument(f"--{name}", type=int)
    made.add_argument("--temperature", type=float)
    verb(evals, "stop", "stop an evaluation", "id")

    releases = verbs("releases", "immutable benchmark releases")
    listing(releases, "releases")
    verb(releases, "show", "one release", "benchmark", "number")
    verb(releases, "standings", "its leaderboard", "benchmark", "number")
    return top


def main(arguments: Sequence[str] | None = None, *, client: Client | None = None, out: TextIO | None = None) -> int:
    """The exit status: 0, 1 for what the API refused, 2 for a wrong command line, 3 when nothing answers."""
    options = parser().parse_args(arguments)
    output = Output(as_json=options.json, out=out)
    try:
        if options.noun == "config":
            token = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline().strip()
            path = keep(url=options.url, token=token)
            output.said(f"kept in {path}", {"file": str(path)})
            return 0
        if client is None:
            found = settings()
            client = Client(found.url, found.token)
        with client:
            HANDLERS[options.noun](client, options, output)
        return 0
    except ApiError as error:
        return _failed(
            options, 1, error.message, {"code": error.code, "message": error.message, "fields": error.fields}
        )
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


def _filters(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names}


def _runs(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            names = ("q", "state", "kind", "policy", "tag", "by", "sweep", "archived")
            output.rows(client.runs(limit=options.limit, **_filters(options, *names)), RUN_COLUMNS)
        case "show":
            output.one(client.run(options.id))
        case "launch":
            _launch(client, options, output)
        case "sweep":
            _sweep(client, options, output)
        case "follow":
            _follow(client, options.id, options, output)
        case "tag":
            output.rows([client.label(options.id, tags=options.tags)], RUN_COLUMNS)
        case "note":
            output.rows([client.label(options.id, notes=options.text)], RUN_COLUMNS)
        case "export":
            with _target(options.output, output) as target:
                exports.of_run(client, options.id, options.what, options.format, target)
        case action:
            output.rows([client.act(options.id, action)], RUN_COLUMNS)


def _launch(client: Client, options: argparse.Namespace, output: Output) -> None:
    config = configuration(client, options)
    if options.dry_run:
        output.one(client.validate(config, parent=options.parent))
        return
    run = client.create(config, start=not options.draft, parent=options.parent)
    if options.follow and not options.draft:
        output.streamed(f"run {run.id} is {run.state}", {"run": run.id, "state": run.state})
        _follow(client, run.id, options, output)
    else:
        output.rows([run], RUN_COLUMNS)


def _sweep(client: Client, options: argparse.Namespace, output: Output) -> None:
    config, varied = configuration(client, options), fields(options.vary)
    if options.dry_run:
        found = client.preview_sweep(config, varied, options.mode)
        output.rows(found.runs, ("name", "values", "errors"))
        return
    sweep = client.create_sweep(config, varied, options.mode, start=not options.draft)
    output.said(f"sweep {sweep.id}: {sweep.runs} runs of {sweep.name}", sweep.model_dump(mode="json"))


def _follow(client: Client, pk: int, options: argparse.Namespace, output: Output) -> None:
    names = options.metric or ["reward/mean", "loss/train"]
    for seen in follow(client, pk, metrics=names, timeout=options.timeout):
        output.streamed(seen.words, seen.data)


def _target(name: str, output: Output) -> exports.Target:
    try:
        return exports.Target(output.out, None) if name == "-" else exports.Target.file(Path(name))
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error}") from error


def _templates(client: Client, options: argparse.Namespace, output: Output) -> None:
    output.rows(client.templates()[: options.limit], TEMPLATE_COLUMNS)


def _rollouts(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            names = ("run", "evaluation", "task", "verdict", "stop_reason", "version", "label")
            output.rows(client.rollouts(limit=options.limit, **_filters(options, *names)), ROLLOUT_COLUMNS)
        case "show":
            output.one(client.rollout(options.id))
        case _:
            with _target(options.output, output) as target:
                exports.trajectory(client, options.id, target, tokens=options.tokens)


def _suites(client: Client, options: argparse.Namespace, output: Output) -> None:
    if options.verb == "list":
        output.rows(client.suites(limit=options.limit), SUITE_COLUMNS)
    else:
        output.one(client.suite(options.name))


def _policies(client: Client, options: argparse.Namespace, output: Output) -> None:
    if options.verb == "list":
        output.rows(client.policies(limit=options.limit), POLICY_COLUMNS)
    else:
        output.one(client.policy(options.name))


def _evals(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            names = ("run", "policy", "suite", "phase", "state")
            output.rows(client.evaluations(limit=options.limit, **_filters(options, *names)), EVAL_COLUMNS)
        case "show":
            output.one(client.evaluation(options.id))
        case "launch":
            given = _filters(options, "policy", "suite", "tasks", "samples", "temperature", "seed")
            body = {name: value for name, value in given.items() if value is not None}
            output.rows([client.evaluate(body)], EVAL_COLUMNS)
        case _:
            output.rows([client.cancel_evaluation(options.id)], EVAL_COLUMNS)


def _releases(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.releases(limit=options.limit), RELEASE_COLUMNS)
        case "show":
            output.one(client.release(options.benchmark, options.number))
        case _:
            output.one(client.standings(options.benchmark, options.number))


HANDLERS = {
    "runs": _runs,
    "templates": _templates,
    "rollouts": _rollouts,
    "suites": _suites,
    "policies": _policies,
    "evals": _evals,
    "releases": _releases,
}
