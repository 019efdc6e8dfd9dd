"""manage.py tokens: token ids of a run's rollouts, one context window per line, for external training."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, TextIO

from django.core.management.base import BaseCommand, CommandError

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.selectors import readable, trajectory
from composer_web.runs.selectors import get_run


class Command(BaseCommand):
    help = (
        'Write {"rollout", "tokens", "loss_mask"} of each context window of the newest rollouts of RUN, as JSON lines.'
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", type=int)
        parser.add_argument("--rollouts", type=int, default=256, help="how many, the newest first")
        parser.add_argument("--out", type=Path, help="a file; standard output without it")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            run = get_run(o["run"])
            if o["out"] is None:
                self._write(run.pk, o["rollouts"], sys.stdout)
            else:
                with o["out"].open("w", encoding="utf-8") as file:
                    self._write(run.pk, o["rollouts"], file)
        except (UserError, ArtifactError, OSError) as error:
            raise CommandError(str(error)) from error

    def _write(self, run: int, most: int, out: TextIO) -> None:
        found = readable(Rollout.objects.filter(group__run_id=run)).order_by("-pk")[:most]
        if not found:
            raise CommandError(f"run {run} has no finished rollout yet")
        for rollout in found:
            for segment in trajectory(rollout).segments:
                line = {"rollout": rollout.pk, "tokens": segment.tokens, "loss_mask": segment.loss_mask}
                out.write(json.dumps(line) + "\n")
