"""manage.py run: the command-line twin of the runs pages."""

from __future__ import annotations

import json
import sys
import tomllib
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.ops.errors import UserError
from composer_web.rollouts.selectors import verdict_counts
from composer_web.runs import selectors, services
from composer_web.runs.models import Run
from composer_web.runs.presets import PRESETS, preset


class Command(BaseCommand):
    help = "Create, start, list, show, pause, resume and stop runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="create a draft from a TOML or JSON file (- reads JSON) or a preset")
        create.add_argument("file", nargs="?")
        create.add_argument("--preset", choices=[p.key for p in PRESETS])
        create.add_argument(
            "--set", action="append", default=[], metavar="stage.steps=5", help="change a field (JSON value or text)"
        )
        create.add_argument("--start", action="store_true")
        listing = actions.add_parser("list", help="runs, newest first")
        listing.add_argument("--state")
        for name, text in (
            ("start", "queue a draft"),
            ("show", "everything of a run as JSON"),
            ("pause", "stop after the current step"),
            ("resume", "go on from the last checkpoint"),
            ("stop", "cancel for good"),
            ("wait", "wait until it has ended"),
        ):
            actions.add_parser(name, help=text).add_argument("id", type=int)
        actions.choices["wait"].add_argument("--timeout", type=float, default=3600.0)
        actions.add_parser("presets", help="configurations to start from")

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            getattr(self, f"do_{action}")(options)
        except UserError as error:
            details = "".join(
                f"\n  {field}: {message}" for field, message in error.fields.items() if message != error.message
            )
            raise CommandError(error.message + details) from error
        except selectors.WaitTimeout as error:
            raise CommandError(str(error)) from error

    def do_create(self, options: dict[str, Any]) -> None:
        data = self._configuration(options)
        for change in options["set"]:
            path, separator, text = change.partition("=")
            if not separator:
                raise CommandError(f"--set {change!r}: write it as stage.steps=5")
            _assign(data, path.split("."), text)
        run = services.create_run(config=services.parse_config(data))
        if options["start"]:
            services.start_run(run=run)
        self._say(run)

    def _configuration(self, options: dict[str, Any]) -> dict[str, Any]:
        if options["preset"]:
            chosen = preset(options["preset"])
            assert chosen is not None
            return chosen.config.model_dump(mode="json")
        if not options["file"]:
            raise CommandError("name a file or a --preset")
        try:
            text = sys.stdin.read() if options["file"] == "-" else Path(options["file"]).read_text()
            data = tomllib.loads(text) if options["file"].endswith(".toml") else json.loads(text)
        except (OSError, ValueError) as error:
            raise CommandError(f"{options['file']} cannot be read: {error}") from error
        if not isinstance(data, dict):
            raise CommandError(f"{options['file']}: expected an object with name, policy, seed and stage")
        return data

    def do_list(self, options: dict[str, Any]) -> None:
        query = selectors.runs()
        if options["state"]:
            query = query.filter(state=options["state"])
        for run in query[:100]:
            self._say(run)

    def do_show(self, options: dict[str, Any]) -> None:
        run = selectors.get_run(options["id"])
        facts = {
            "id": run.pk,
            "name": run.name,
            "kind": run.kind,
            "state": run.state,
            "step": run.step,
            "steps": run.steps_total,
            "phase": run.phase,
            "failure": run.failure,
            "rollouts": verdict_counts(run=run),
            "latest": run.latest,
            "config": run.config,
        }
        self.stdout.write(json.dumps(facts, indent=2))

    def do_start(self, options: dict[str, Any]) -> None:
        self._say(services.start_run(run=selectors.get_run(options["id"])))

    def do_pause(self, options: dict[str, Any]) -> None:
        self._say(services.pause_run(run=selectors.get_run(options["id"])))

    def do_resume(self, options: dict[str, Any]) -> None:
        self._say(services.resume_run(run=selectors.get_run(options["id"])))

    def do_stop(self, options: dict[str, Any]) -> None:
        self._say(services.cancel_run(run=selectors.get_run(options["id"])))

    def do_wait(self, options: dict[str, Any]) -> None:
        self._say(selectors.wait_until_final(selectors.get_run(options["id"]), timeout=options["timeout"]))

    def do_presets(self, options: dict[str, Any]) -> None:
        for p in PRESETS:
            self.stdout.write(f"{p.key:16} {p.title}: {p.description}")

    def _say(self, run: Run) -> None:
        self.stdout.write(
            f"{run.pk}\t{run.state}\t{run.kind}\t{run.step}/{run.steps_total}\t{run.name}"
            + (f"\t{run.failure}" if run.failure else "")
        )


def _assign(data: dict[str, Any], path: list[str], text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    for name in path[:-1]:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise CommandError(f"--set: {name} is not an object")
    data[path[-1]] = value
