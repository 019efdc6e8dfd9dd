"""oc repositories, environments, tasks: from a repository to tasks that people have reviewed."""

from __future__ import annotations

import argparse
import getpass
import sys

from oc import exports, interchange, waiting
from oc.client import Client
from oc.files import readable, words_of
from oc.grammar import Grammar, Handler, given, optional, patience, waits
from oc.models import RepositoryOut
from oc.show import Output

ENVIRONMENT_COLUMNS = ("name", "state", "source", "task_count", "failure")
REPOSITORY_COLUMNS = ("name", "state", "kind", "location", "pin", "licence")
TASK_COLUMNS = ("slug", "source", "category", "controls_ok", "test_strength", "review", "split", "tags")
SUITE_COLUMNS = ("name", "purpose", "reviewed", "task_count", "valid_count", "rejected_count", "description")
ORDER_COLUMNS = ("name", "state", "tasks", "generators", "by", "at", "why")
YIELD_COLUMNS = ("generator", "package", "tried", "kept", "per_minute", "seconds", "created_at")
CHANGE_COLUMNS = ("id", "task", "field", "before", "after", "actor_name", "at", "batch")
REVIEW_COLUMNS = ("task", "version", "state", "mine")
TASK_FILTERS = (
    *("q", "source", "category", "suite", "controls", "strength", "difficulty"),
    *("strength_max", "review", "mine", "split", "tag", "finding"),
)
DECISIONS = {"accept": "accept", "reject": "reject", "withdraw": "withdrawn"}


def grammar(top: Grammar) -> dict[str, Handler]:
    group = top.noun("repositories", "sources that become environments by themselves")
    group.listing("repositories")
    group.add("show", "the environment made from one", "name")
    made = group.add("add", "one of git, of a folder of the server, or of the package index")
    made.add_argument("kind", choices=["git", "path", "sdist"])
    made.add_argument("location", help="address, folder or package")
    optional(made, "name", "revision")
    made.add_argument("--private", action="store_true", help="ask for an access token, or read it from standard input")
    waits(made, "stay with the build and print its log")
    made = group.add("upload", "one from a .tar.gz or .zip", "location")
    optional(made, "name")
    waits(made, "stay with the build and print its log")
    waits(group.add("again", "build a failed one again", "name"), "stay with the build and print its log")
    group.add("cancel", "stop a build", "name")
    group.add("log", "the log of the last build", "name")
    patience(group.add("follow", "stay with a build and print its log", "name"))

    group = top.noun("environments", "prepared images that tasks run in")
    group.listing("environments")
    group.add("show", "one of them", "name")
    made = group.add("build", "one of a package of the package index", "package")
    waits(made, "stay with the build and print its log")

    group = top.noun("tasks", "instruction, environment and hidden tests")
    group.listing("tasks", *TASK_FILTERS)
    group.add("show", "one task with its versions", "name")
    made = group.add("generate", "have generators make a suite of packages or repositories", "name")
    made.add_argument("packages", nargs="+")
    made.add_argument("--generators", nargs="+")
    made.add_argument("--styles", nargs="+")
    optional(made, "purpose", "rewriter")
    optional(made, "count", "seed", kind=int)
    waits(made, "stay until the suite is there and its controls have run")
    group.add("orders", "what became of the suites that generators were asked for")
    group.add("yields", "what generators tried, kept and spent").add_argument("--limit", type=int, default=50)
    optional(group.add("next", "the next task that waits for your review"), *TASK_FILTERS)
    made = group.add("review", "accept or reject the newest version, or withdraw that", "name")
    made.add_argument("decision", choices=[*DECISIONS])
    optional(made, "note", "into")
    optional(made, "version", kind=int)
    group.add("edit", "the next version, with the words of a file (- is standard input)", "name", "file")
    made = group.add("change", "tags, side or suite of many tasks at once")
    made.add_argument("action", choices=["tag", "untag", "split", "suite", "unsuite"])
    made.add_argument("value", help="tags by commas, a side, or a suite")
    made.add_argument("tasks", nargs="+")
    group.add("undo", "undo a batch of changes", "batch")
    made = group.add("history", "what people changed")
    made.add_argument("--limit", type=int, default=50)
    optional(made, "task")
    group.add("compare", "what differs between two versions", "name", "before", "after")
    group.add("disagreements", "tasks whose reviewers do not agree")
    group.add("reviews", "what reviewers said of the newest version, once you have", "name")
    group.add("controls", "run all controls of a task again", "name")
    made = group.add("export", "a task with its hidden tests and oracle, in another project's format", "name")
    exports.leaves(made, interchange.TASK_FORMATS)
    return {"repositories": _repositories, "environments": _environments, "tasks": _tasks}


def _repositories(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.environments.list_repositories(limit=options.limit), REPOSITORY_COLUMNS)
        case "show":
            output.one(client.environments.get(options.name))
        case "log":
            text = client.environments.get_log(options.name).text
            output.said(text.rstrip(), {"log": text})
        case "cancel":
            output.rows([client.environments.cancel(options.name)], ENVIRONMENT_COLUMNS)
        case "follow":
            _build(client, options.name, options, output)
        case "again":
            found = client.environments.build_again(options.name)
            if options.follow:
                _build(client, options.name, options, output)
            else:
                output.rows([found], ENVIRONMENT_COLUMNS)
        case _:
            made = _added(client, options)
            if options.follow:
                _build(client, made.environment, options, output)
            else:
                output.rows([made], REPOSITORY_COLUMNS)


def _environments(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.environments.list(limit=options.limit), ENVIRONMENT_COLUMNS)
        case "show":
            output.one(client.environments.get(options.name))
        case _:
            found = client.environments.build(package=options.package)
            if options.follow:
                _build(client, found.name, options, output)
            else:
                output.rows([found], ENVIRONMENT_COLUMNS)


def _added(client: Client, options: argparse.Namespace) -> RepositoryOut:
    if options.verb == "upload":
        return client.environments.upload_repository(archive=readable(options.location), **given(options, ("name",)))
    token = ""
    if options.private:
        token = getpass.getpass("Access token: ") if sys.stdin.isatty() else sys.stdin.readline().strip()
    return client.environments.add_repository(
        kind=options.kind, location=options.location, token=token, **given(options, ("name", "revision"))
    )


def _build(client: Client, name: str, options: argparse.Namespace, output: Output) -> None:
    output.last(waiting.build(client, name, output, timeout=options.timeout), ENVIRONMENT_COLUMNS)


def _tasks(client: Client, options: argparse.Namespace, output: Output) -> None:
    match options.verb:
        case "list":
            output.rows(client.tasks.list(limit=options.limit, **given(options, TASK_FILTERS)), TASK_COLUMNS)
        case "show":
            output.one(client.tasks.get(options.name))
        case "generate":
            _generate(client, options, output)
        case "orders":
            output.rows(client.tasks.list_orders(), ORDER_COLUMNS)
        case "yields":
            output.rows(client.tasks.list_generator_runs(limit=options.limit), YIELD_COLUMNS)
        case "next":
            output.rows([client.curation.get_next(**given(options, TASK_FILTERS))], ("task", "waiting"))
        case "review":
            named = {"decision": DECISIONS[options.decision], **given(options, ("note", "into", "version"))}
            output.rows([client.curation.review(options.name, **named)], REVIEW_COLUMNS)
        case "edit":
            made = client.curation.edit_instruction(options.name, instruction=words_of(options.file))
            output.rows([made], ("task", "version"))
        case "change":
            named = given(options, ("action", "value", "tasks"))
            output.rows([client.curation.change_tasks(**named)], ("id", "changed", "unchanged"))
        case "undo":
            output.rows([client.curation.undo(options.batch)], ("id", "changed", "unchanged"))
        case "history":
            output.rows(client.curation.list_changes(limit=options.limit, **given(options, ("task",))), CHANGE_COLUMNS)
        case "reviews":
            output.one(client.curation.get_reviews(options.name))
        case "controls":
            asked = client.tasks.run_controls(options.name)
            output.said(f"{asked.requested} controls are on their way", asked.model_dump(mode="json"))
        case "export":
            interchange.bundles(client.tasks.export, options, output)
        case "compare":
            parts = client.curation.compare_versions(options.name, before=options.before, after=options.after)
            words = "\n".join(f"{part.name}\n{part.diff}" for part in parts) or "they are the same"
            output.said(words, [part.model_dump(mode="json") for part in parts])
        case _:
            output.rows(client.curation.list_disagreements(), ("task", "version", "reviews", "hidden"))


def _generate(client: Client, options: argparse.Namespace, output: Output) -> None:
    names = ("name", "packages", "generators", "styles", "purpose", "rewriter", "count", "seed")
    asked = client.tasks.generate(**given(options, names))
    if options.follow:
        output.last(waiting.order(client, options.name, timeout=options.timeout), SUITE_COLUMNS)
    else:
        output.said(f"at most {asked.requested} tasks are on their way", asked.model_dump(mode="json"))
