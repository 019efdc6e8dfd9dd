"""manage.py exchange: tasks and rollouts to and from other projects' formats."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.core.errors import UserError
from composer_web.rollouts.models import Rollout
from composer_web.tasks import importing, interchange, selectors


class Command(ProjectCommand):
    help = (
        "Tasks and trajectories to and from other formats: Harbor, SWE-bench, ATIF, messages, mini-swe-agent, Inspect."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("what", choices=["export", "rollout", "log", "import", "convert"])
        parser.add_argument(
            "name",
            help="of the suite; the id of a rollout or, for a log, of an evaluation; to convert, the file to read",
        )
        parser.add_argument("file", type=Path, help="to write; to import, the file or Harbor directory to read")
        parser.add_argument("--environment", default="", help="to import SWE-bench rows: a ready environment")
        parser.add_argument("--format", default="", help="harbor, swe-bench; atif, messages, mini-swe-agent")
        parser.add_argument("--purpose", choices=["train", "held-out", "benchmark"], default="benchmark")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            losses = getattr(self, f"_{options['what']}")(options["name"], options["file"], options)
        except (UserError, OSError) as error:
            raise CommandError(str(error)) from error
        for loss in losses:
            self.stdout.write(f"not carried: {loss}")
        self.stdout.write(f"{options['what']}: {options['file']}")

    def _export(self, name: str, file: Path, options: dict[str, Any]) -> list[str]:
        suite = selectors.get_suite(name)
        specs = [version.bundle for version in suite.versions.order_by("memberships__position")]
        data, losses = interchange.export_tasks(specs, options["format"] or "harbor")
        file.write_bytes(data)
        return losses

    def _rollout(self, name: str, file: Path, options: dict[str, Any]) -> list[str]:
        document, losses = interchange.export_rollout(_rollout(name), options["format"] or "atif")
        file.write_text(json.dumps(document))
        return losses

    def _log(self, name: str, file: Path, options: dict[str, Any]) -> list[str]:
        rollouts = Rollout.objects.filter(group__evaluation_id=name).select_related("group").order_by("pk")
        data, losses = interchange.export_log(rollouts, suite=f"evaluation-{name}")
        file.write_bytes(data)
        return losses

    def _import(self, name: str, file: Path, options: dict[str, Any]) -> list[str]:
        data = file if file.is_dir() else file.read_bytes()
        guess: importing.TaskImport = "swe-bench" if file.suffix == ".jsonl" else "harbor"
        form = options["format"] or guess
        _, losses = importing.import_suite(
            data, name=name, format=form, environment=options["environment"], purpose=options["purpose"], told=file.name
        )
        return losses

    def _convert(self, name: str, file: Path, options: dict[str, Any]) -> list[str]:
        record, lost, _ = importing.read_trajectory(Path(name).read_bytes())
        data, losses = importing.write_trajectory(record, options["format"] or "atif")
        file.write_bytes(data)
        return [*lost, *losses]


def _rollout(name: str) -> Rollout:
    found = Rollout.objects.select_related("group").filter(pk=name).first() if name.isdigit() else None
    if found is None:
        raise UserError("rollout", f"there is no rollout {name!r}")
    return found
