"""manage.py sweep: runs that differ in named fields."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.ops.errors import UserError
from composer_web.runs import sweeps
from composer_web.runs.management.sources import add_source, configuration
from composer_web.runs.models import SweepMode


class Command(ProjectCommand):
    help = "Make, preview, list and show sweeps."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="all runs of a sweep, as drafts")
        add_source(create)
        create.add_argument(
            "--vary",
            action="append",
            default=[],
            required=True,
            metavar="stage.steps=20,40",
            help="a field and its values",
        )
        create.add_argument("--mode", choices=SweepMode.values, default=SweepMode.GRID.value)
        create.add_argument("--start", action="store_true", help="queue them in order")
        create.add_argument("--dry-run", action="store_true", help="print the runs and their checks; make nothing")
        actions.add_parser("list", help="sweeps, newest first")
        actions.add_parser("show", help="a sweep with its runs as JSON").add_argument("id", type=int)

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        try:
            getattr(self, f"do_{action}")(options)
        except UserError as error:
            raise CommandError(error.message) from error

    def do_create(self, options: dict[str, Any]) -> None:
        config = configuration(options)
        fields = sweeps.parse_fields("\n".join(word.replace("=", ": ", 1) for word in options["vary"]))
        if options["dry_run"]:
            found = sweeps.preview(config, fields, options["mode"])
            for point in found.points:
                values = " ".join(f"{n}={v}" for n, v in zip(found.fields, point.values, strict=True))
                self.stdout.write(f"{values}\t{'; '.join(point.errors.values()) or 'ok'}")
            if not found.ok:
                raise CommandError("some of these runs cannot work; a sweep is made whole or not at all")
            return
        sweep = sweeps.create_sweep(config=config, fields=fields, mode=options["mode"], start=options["start"])
        self._say(sweeps.get_sweep(sweep.pk))

    def do_list(self, options: dict[str, Any]) -> None:
        for sweep in sweeps.sweeps()[:100]:
            self._say(sweep)

    def do_show(self, options: dict[str, Any]) -> None:
        sweep = sweeps.get_sweep(options["id"])
        runs = [
            {"id": run.pk, "name": run.name, "state": run.state, "values": run.varied, "latest": run.latest}  # type: ignore[attr-defined]
            for run in sweeps.members(sweep)
        ]
        facts = {"id": sweep.pk, "name": sweep.name, "mode": sweep.mode, "fields": sweep.varied, "runs": runs}
        self.stdout.write(json.dumps(facts, indent=2))

    def _say(self, sweep: Any) -> None:
        varied = "; ".join(f"{name}={values}" for name, values in sweep.varied.items())
        self.stdout.write(f"{sweep.pk}\t{sweep.run_count} runs\t{sweep.live_count} live\t{sweep.name}\t{varied}")
