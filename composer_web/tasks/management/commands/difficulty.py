"""manage.py difficulty: how hard the tasks of a suite are for each policy that was measured on it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from composer_web.accounts.commands import ProjectCommand
from composer_web.core.errors import UserError
from composer_web.evals.models import Evaluation
from composer_web.tasks import difficulty, selectors


class Command(ProjectCommand):
    help = "Show what pre-passes say of a suite; --measure starts one, --record takes the statistics of one anew."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("suite")
        parser.add_argument(
            "--measure", metavar="POLICY", help="`name` or `name@version`; the evaluation starts at once"
        )
        parser.add_argument("--samples", type=int, default=difficulty.SAMPLES, help="rollouts of a task")
        parser.add_argument("--tasks", type=int, default=0, help="0: all")
        parser.add_argument("--record", type=int, metavar="EVALUATION", help="id of a finished evaluation")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            suite = selectors.get_suite(options["suite"])
            if options["measure"]:
                made = difficulty.prepass(
                    suite=suite, reference=options["measure"], samples=options["samples"], tasks=options["tasks"]
                )
                self.stdout.write(f"evaluation {made.pk} was started; ask again when it has finished")
            if options["record"]:
                if not Evaluation.objects.filter(pk=options["record"], state="finished").exists():
                    raise UserError("record", f"there is no finished evaluation {options['record']}")
                self.stdout.write(f"{difficulty.record_statistics(evaluation_id=options['record'])} tasks recorded")
        except UserError as error:
            raise CommandError(str(error)) from error
        found = difficulty.of_suite(suite)
        if not found:
            self.stdout.write(f"{suite.name} was never measured: evaluate a policy on it")
        for one in found:
            self.stdout.write(
                f"{one.policy}: {one.measured} tasks, pass rate {one.pass_rate:.1%}, solved by all {one.solved_all}, by none "
                f"{one.solved_none}, {one.turns:.1f} turns, {one.thinking_tokens:.0f} thinking tokens"
            )
