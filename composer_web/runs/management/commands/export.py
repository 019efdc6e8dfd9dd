"""manage.py export: what belongs to a run, as JSON lines."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.accounts.models import User
from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.errors import NotFound
from composer_web.ops.sheets import line
from composer_web.rollouts import selectors as rollouts
from composer_web.rollouts.exported import table
from composer_web.rollouts.exports import CHUNK
from composer_web.runs import selectors

TABLES = ("rollouts", "metrics", "findings", "evaluations")


class Command(BaseCommand):
    help = "Write a table of a run, or its trajectories, to standard output, one JSON object a line."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", type=int)
        parser.add_argument("what", choices=[*TABLES, "trajectories"])

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run = selectors.get_run(options["run"])
            if options["what"] != "trajectories":
                wanted = table(options["what"])
                rows = wanted.select(f"run={run.pk}", asker=User())
                for page in wanted.pages(rows, wanted.columns, CHUNK, None):
                    self.stdout.write("".join(map(line, page)), ending="")
                return
            for rollout in (
                rollouts.rollouts().filter(group__run=run).exclude(artifact_key="").order_by("pk").iterator()
            ):
                found = {"id": rollout.pk, "trajectory": rollouts.trajectory(rollout).model_dump(mode="json")}
                self.stdout.write(json.dumps(found))
        except (NotFound, ArtifactError) as error:
            raise CommandError(str(error)) from error
