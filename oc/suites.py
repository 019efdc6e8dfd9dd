"""oc suites: sets of task versions, how hard they are, and their ways in and out."""

from __future__ import annotations

import argparse

from oc import exports, interchange, waiting
from oc.client import Client
from oc.everything import read
from oc.files import readable
from oc.grammar import Grammar, Handler, given, optional, waits
from oc.models import MemberOut
from oc.show import Output
from oc.supply import SUITE_COLUMNS

DIFFICULTY_COLUMNS = ("policy", "measured", "solved_all", "solved_none", "pass_rate", "turns", "thinking_tokens")
MEMBER_COLUMNS = ("position", "task", "version", "controls_ok", "bundle_hash")
PURPOSES = ("train", "held-out", "benchmark")


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("suites", "sets of task versions")
    group.listing("suites")
    group.add("show", "one of them", "name")
    made = group.add("members", "its tasks in order", "name")
    made.add_argument("--limit", type=int)
    optional(made, "after", kind=int)
    made = group.add("open", "an empty suite to curate into", "name")
    _described(made)
    made.add_argument("--reviewed", action="store_true", help="only what two reviewers admit joins, for good")
    made = group.add("make", "one of bundles of tasks", "name")
    made.add_argument("file", help="JSON list of bundles, as `oc tasks show` has them; - reads standard input")
    _described(made)
    waits(group.add("controls", "run the controls of tasks that have none", "name"))
    group.add("difficulty", "what pre-passes measured: how hard it is for which policy", "name")
    made = group.add("prepass", "measure how hard it is for a policy", "name", "policy")
    optional(made, "samples", "tasks", "seed", kind=int)
    waits(made, "stay until it is measured")
    made = group.add("import", "one of a zip of Harbor directories, or of SWE-bench's rows", "name", "file")
    made.add_argument("--format", choices=interchange.TASK_FORMATS, default="harbor")
    made.add_argument("--purpose", choices=PURPOSES, default="benchmark")
    made.add_argument("--environment", help="the ready one that SWE-bench's rows are about")
    exports.leaves(group.add("export", "its tasks in another project's format", "name"), interchange.TASK_FORMATS)
    return {"suites": _suites}


def _described(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--purpose", choices=PURPOSES, default="benchmark")
    parser.add_argument("--description", default="")


def _suites(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.suites.list(limit=options.limit), SUITE_COLUMNS)
        case "show":
            output.one(client.suites.get(options.name))
        case "members":
            _members(client, options, output)
        case "open":
            names = ("name", "purpose", "description", "reviewed")
            output.rows([client.curation.open_suite(**given(options, names))], SUITE_COLUMNS)
        case "make":
            named = given(options, ("name", "purpose", "description"))
            output.rows([client.suites.create(tasks=read(options.file), **named)], SUITE_COLUMNS)
        case "difficulty":
            output.rows(client.suites.get_difficulty(options.name), DIFFICULTY_COLUMNS)
        case "prepass":
            _prepass(client, options, output)
        case "import":
            named = given(options, ("format", "purpose", "environment"))
            made = client.suites.import_suite(options.name, file=readable(options.file), **named)
            output.rows([made], ("suite", "tasks", "not_carried"))
        case "export":
            interchange.bundles(client.suites.export, options, output)
        case _:
            asked = client.suites.validate(options.name)
            if options.follow:
                output.last(waiting.proven(client, options.name, timeout=options.timeout), SUITE_COLUMNS)
            else:
                output.said(f"{asked.requested} controls are on their way", asked.model_dump(mode="json"))


def _members(client: Client, options: argparse.Namespace, output: Output) -> None:
    """Page after page, until `--limit` or the end."""
    found: list[MemberOut] = []
    after = options.after
    while True:
        left = None if options.limit is None else options.limit - len(found)
        page = client.suites.get_members(options.name, limit=min(100, left) if left is not None else 100, after=after)
        found += page.items
        after = page.next
        if after is None or (options.limit is not None and len(found) >= options.limit):
            break
    output.rows(found, MEMBER_COLUMNS)


def _prepass(client: Client, options: argparse.Namespace, output: Output) -> None:
    named = given(options, ("policy", "samples", "tasks", "seed"))
    asked = client.suites.start_prepass(options.name, **named)
    if not options.follow:
        output.said(f"evaluation {asked.evaluation} measures it", asked.model_dump(mode="json"))
        return
    waiting.evaluation(client, asked.evaluation, output, timeout=options.timeout)
    name = options.policy.partition("@")[0]
    for found in client.suites.get_difficulty(options.name):
        if found.policy.partition("@")[0] == name:
            output.last(found, DIFFICULTY_COLUMNS)
