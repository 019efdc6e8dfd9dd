"""manage.py run: the command-line twin of the runs pages."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.ops.errors import UserError
from composer_web.rollouts.selectors import verdict_counts
from composer_web.runs import labels, selectors, services, summary, text
from composer_web.runs.filters import RunFilter
from composer_web.runs.management.sources import add_source, configuration
from composer_web.runs.models import Run, RunState
from composer_web.runs.presets import PRESETS


class Command(ProjectCommand):
    help = "Create, start, list, show, pause, resume and stop runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser(
            "create", help="create a draft from a YAML, TOML or JSON file, a preset or a template"
        )
        add_source(create)
        create.add_argument("--start", action="store_true")
        create.add_argument("--parent", type=int, help="run that it is told against")
        create.add_argument(
            "--dry-run", action="store_true", help="check, and print what would run as JSON; make nothing"
        )
        written = actions.add_parser("config", help="the settings of a run as YAML or TOML")
        written.add_argument("id", type=int)
        written.add_argument("--format", choices=["yaml", "toml"], default="yaml")
        listing = actions.add_parser("list", help="runs, newest first")
        listing.add_argument("--state")
        listing.add_argument("--archived", choices=["only", "all"], help="archived ones alone, or too; else none")
        for name, words in (
            ("start", "queue a draft"),
            ("show", "everything of a run as JSON"),
            ("pause", "stop after the current step"),
            ("resume", "go on from the last checkpoint"),
            ("stop", "cancel for good"),
            ("archive", "leave it out of lists"),
            ("restore", "show it in lists again"),
            ("wait", "wait until it has ended"),
        ):
            actions.add_parser(name, help=words).add_argument("id", type=int)
        actions.choices["wait"].add_argument("--timeout", type=float, default=3600.0)
        tagged = actions.add_parser("tag", help="the tags of a run from now on")
        tagged.add_argument("id", type=int)
        tagged.add_argument("tags", nargs="*")
        noted = actions.add_parser("note", help="the notes of a run")
        noted.add_argument("id", type=int)
        noted.add_argument("text")
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
        config = configuration(options)
        parent = selectors.get_run(options["parent"]) if options["parent"] is not None else None
        if options["dry_run"]:
            warnings = services.check_config(config)
            differences = {row.label: row.values for row in summary.against_parent(config, parent)}
            facts = {"warnings": warnings, "differences": differences, **summary.as_data(summary.summarise(config))}
            self.stdout.write(json.dumps(facts, indent=2))
            return
        run = services.create_run(config=config, parent=parent)
        if options["start"]:
            services.start_run(run=run)
        self._say(run)

    def do_config(self, options: dict[str, Any]) -> None:
        config = selectors.get_run(options["id"]).configuration
        self.stdout.write(text.render(config, options["format"]), ending="")

    def do_list(self, options: dict[str, Any]) -> None:
        said = {"state": options["state"] or "", "archived": options["archived"] or ""}
        found = RunFilter(said, queryset=selectors.runs())
        if found.errors:
            raise CommandError(f"--state {options['state']!r} is none of {', '.join(RunState)}")
        for run in found.qs[:100]:
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

    def do_archive(self, options: dict[str, Any]) -> None:
        self._say(labels.archive_run(run=selectors.get_run(options["id"])))

    def do_restore(self, options: dict[str, Any]) -> None:
        self._say(labels.restore_run(run=selectors.get_run(options["id"])))

    def do_tag(self, options: dict[str, Any]) -> None:
        self._say(labels.set_tags(run=selectors.get_run(options["id"]), tags=options["tags"]))

    def do_note(self, options: dict[str, Any]) -> None:
        self._say(labels.set_notes(run=selectors.get_run(options["id"]), notes=options["text"]))

    def do_wait(self, options: dict[str, Any]) -> None:
        self._say(selectors.wait_until_final(selectors.get_run(options["id"]), timeout=options["timeout"]))

    def do_presets(self, options: dict[str, Any]) -> None:
        for p in PRESETS:
            self.stdout.write(f"{p.key:16} {p.title}: {p.description}")

    def _say(self, run: Run) -> None:
        self.stdout.write(
            f"{run.pk}\t{run.state}\t{run.kind}\t{run.step}/{run.steps_total}\t{run.name}"
            + (f"\t[{' '.join(run.tags)}]" if run.tags else "")
            + (f"\t{run.failure}" if run.failure else "")
        )
