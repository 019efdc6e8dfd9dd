"""manage.py export: rollouts or metrics of a run as JSON lines."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.errors import NotFound
from composer_web.rollouts import selectors as rollouts
from composer_web.runs import selectors
from composer_web.runs.models import Metric


class Command(BaseCommand):
    help = (
        "Write rollouts (with trajectories on demand) or metrics of a run to standard output, one JSON object a line."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", type=int)
        parser.add_argument("what", choices=["rollouts", "trajectories", "metrics"])

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            run = selectors.get_run(options["run"])
            if options["what"] == "metrics":
                rows = (
                    Metric.objects.filter(run=run)
                    .order_by("step", "key_id")
                    .values_list("step", "key__name", "value", "at")
                )
                for step, name, value, at in rows.iterator():
                    self._line({"step": step, "name": name, "value": value, "at": at.isoformat()})
                return
            for rollout in rollouts.rollouts().filter(group__run=run).order_by("pk").iterator():
                if options["what"] == "rollouts":
                    self._line(
                        {
                            "id": rollout.pk,
                            "group": rollout.group_id,
                            "sample": rollout.sample,
                            "task": rollout.group.task_version.task.slug,
                            "verdict": rollout.verdict,
                            "reward": rollout.reward,
                            "stop_reason": rollout.stop_reason,
                        }
                    )
                elif rollout.artifact_key:
                    self._line({"id": rollout.pk, "trajectory": rollouts.trajectory(rollout).model_dump(mode="json")})
        except (NotFound, ArtifactError) as error:
            raise CommandError(str(error)) from error

    def _line(self, value: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(value))
