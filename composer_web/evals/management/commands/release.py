"""manage.py release: publish, list and run benchmark releases."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.evals import comparing, contamination, releases, selectors, standings
from composer_web.evals.schemas import BoardOut, ComparisonOut, EntryOut
from composer_web.ops.errors import UserError
from composer_web.tasks.selectors import get_suite, get_task


class Command(ProjectCommand):
    help = "Benchmark releases: immutable task versions, with a leaderboard each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("list", help="all releases")
        publish = actions.add_parser("publish", help="the next release of a benchmark from a suite")
        publish.add_argument("benchmark")
        publish.add_argument("suite")
        publish.add_argument("--keep", action="store_true", help="take over what the release before has unflagged")
        publish.add_argument(
            "--unreviewed", action="store_true", help="also tasks that two reviewers have not admitted"
        )
        publish.add_argument("--notes", default="")
        run = actions.add_parser("run", help="a policy over a release; `evaluate` and the page say how far it is")
        run.add_argument("release", help="benchmark-number, or benchmark for its newest")
        run.add_argument("policy", help="name, name@version, or the name of an endpoint")
        run.add_argument("--samples", type=int, default=4, help="passes (4)")
        run.add_argument("--temperature", type=float, default=0.8)
        run.add_argument("--effort", default="")
        run.add_argument("--price-input", type=float, help="dollars for a million tokens read")
        run.add_argument("--price-output", type=float, help="dollars for a million tokens written")
        run.add_argument("--turns", type=int, help="most turns of a rollout")
        run.add_argument("--context-tokens", type=int, help="most tokens of a rollout")
        run.add_argument("--interrupt", action="store_true", help="a person stops every rollout; ranked nowhere")
        run.add_argument("--grader", default="", help="endpoint that grades the side evaluations")
        compare = actions.add_parser("compare", help="two evaluations task by task, as JSON")
        compare.add_argument("before", type=int)
        compare.add_argument("after", type=int)
        history = actions.add_parser("history", help="a task in every evaluation, as JSON")
        history.add_argument("task")
        for name, text in (("board", "leaderboard, carried-over scores and flags as JSON"), ("check", "contamination")):
            actions.add_parser(name, help=text).add_argument("release")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            getattr(self, f"_{o['action']}")(o)
        except UserError as error:
            raise CommandError(error.message) from error

    def _list(self, o: dict[str, Any]) -> None:
        for release in standings.releases():
            tasks, count = release.statistics["tasks"], release.evaluation_count  # type: ignore[attr-defined]
            self.stdout.write(f"{release}  {tasks} tasks  {count} evaluations  {release.digest[:12]}")

    def _publish(self, o: dict[str, Any]) -> None:
        options = {name: o[name] for name in ("benchmark", "keep", "unreviewed", "notes")}
        made = releases.publish(suite=get_suite(o["suite"]), **options)
        self.stdout.write(json.dumps({"release": str(made), "digest": made.digest, **made.statistics}))

    def _run(self, o: dict[str, Any]) -> None:
        prices, limits = ("price_input", "price_output"), ("turns", "context_tokens")
        names = ("samples", "temperature", "effort", *prices, *limits, "interrupt", "grader")
        release = standings.find(o["release"])
        made = releases.run(release=release, reference=o["policy"], **{name: o[name] for name in names})
        self.stdout.write(json.dumps({"evaluation": made.pk, "release": str(release), "tasks": made.tasks}))

    def _board(self, o: dict[str, Any]) -> None:
        found = BoardOut.model_validate(standings.board(standings.find(o["release"])), from_attributes=True)
        self.stdout.write(found.model_dump_json())

    def _compare(self, o: dict[str, Any]) -> None:
        found = comparing.compare(*(selectors.get_evaluation(o[name]) for name in ("before", "after")))
        self.stdout.write(ComparisonOut.model_validate(found, from_attributes=True).model_dump_json())

    def _history(self, o: dict[str, Any]) -> None:
        entries = comparing.history(get_task(o["task"]))
        self.stdout.write(json.dumps([EntryOut.model_validate(e, from_attributes=True).model_dump() for e in entries]))

    def _check(self, o: dict[str, Any]) -> None:
        found = contamination.check(standings.find(o["release"]))
        for hit in found.hits:
            self.stdout.write(f"{hit.task}: {hit.training}: {hit.why}")
        self.stdout.write(f"{len(found.hits)} hits among {found.training_tasks} tasks of {len(found.suites)} suites")
