"""manage.py evaluate: measure a policy version on a suite."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.evals.selectors import FINAL, get_evaluation
from composer_web.evals.services import evaluate
from composer_web.ops.errors import UserError
from composer_web.tasks.selectors import get_suite


class Command(ProjectCommand):
    help = "Evaluate `name` or `name@version` on a suite; waits and prints the results as JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("policy")
        parser.add_argument("suite")
        parser.add_argument("--tasks", type=int, default=48)
        parser.add_argument("--samples", type=int, default=8)
        parser.add_argument("--temperature", type=float, default=0.8)
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--timeout", type=float, default=3600.0, help="seconds; 0 does not wait")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            evaluation = evaluate(
                reference=o["policy"],
                suite=get_suite(o["suite"]),
                tasks=o["tasks"],
                samples=o["samples"],
                temperature=o["temperature"],
                seed=o["seed"],
            )
            end = time.monotonic() + o["timeout"]
            while o["timeout"] and evaluation.state not in FINAL:
                if time.monotonic() > end:
                    raise CommandError(f"evaluation {evaluation.pk} is {evaluation.state} after {o['timeout']:.0f} s")
                time.sleep(0.5)
                evaluation = get_evaluation(evaluation.pk)
        except UserError as error:
            raise CommandError(error.message) from error
        if evaluation.state == "failed":
            raise CommandError(f"evaluation {evaluation.pk} failed: {evaluation.failure}")
        self.stdout.write(json.dumps({"id": evaluation.pk, "state": evaluation.state, **evaluation.results}))
