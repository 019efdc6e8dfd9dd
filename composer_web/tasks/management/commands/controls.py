"""manage.py controls: run the controls of tasks here and now, and say what came of them."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q

from composer_web.core.errors import UserError
from composer_web.tasks import selectors
from composer_web.tasks.controls import run_versions
from composer_web.tasks.models import TaskVersion
from sandbox.backends.base import SandboxError
from sandbox.grading.controls import Attempt, Controls
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.version import GRADER


class Command(BaseCommand):
    help = "Run the controls of tasks: oracle, no-op, wrong patches, exploits, mutants, and a search for leaks."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tasks", nargs="*", metavar="TASK", help="task ids (their newest versions)")
        parser.add_argument("--suite", default="", help="all versions of this suite")
        parser.add_argument("--stale", action="store_true", help="of these, only what an older grader judged, or none")
        parser.add_argument("--quick", action="store_true", help="leave out exploits and mutants")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            versions = self._versions(options)
            failed = run_versions(versions, full=not options["quick"], told=self._say)
        except (UserError, SandboxError) as error:
            raise CommandError(str(error)) from error
        if failed:
            raise CommandError(f"{len(failed)} could not be graded: {failed[0]}")

    def _versions(self, options: dict[str, Any]) -> list[TaskVersion]:
        pks = [selectors.newest_version(selectors.get_task(slug)).pk for slug in options["tasks"]]
        found = TaskVersion.objects.filter(pk__in=pks)
        if options["suite"]:
            found = TaskVersion.objects.filter(suites=selectors.get_suite(options["suite"]))
        elif not pks:
            raise UserError("tasks", "name some tasks, or a suite with --suite")
        if options["stale"]:
            found = found.filter(Q(controls=None) | ~Q(controls__grader=GRADER))
        return list(found.select_related("task").order_by("task__slug"))

    def _say(self, version: TaskVersion, controls: Controls) -> None:
        state = "ok" if controls.ok else "REJECTED" if controls.graded else "not graded"
        strength = "" if controls.strength is None else f", strength {controls.strength:.2f}"
        tried = f"oracle {_share(controls.oracle, Verdict.PASSED)}, no-op {_share(controls.noop, Verdict.FAILED)}"
        tried += f", wrong {_refused(controls.wrong)}, exploits {_refused(controls.cheats)}"
        mutants = f", mutants {_refused(controls.mutants)}{strength}"
        self.stdout.write(
            f"{version}: {state}: {tried}{mutants}, {controls.canaries} canaries, {controls.seconds:.1f} s"
        )
        if controls.reason:
            self.stdout.write(f"    {controls.reason}")


def _share(verdicts: tuple[Verdict, ...], wanted: Verdict) -> str:
    return f"{sum(verdict is wanted for verdict in verdicts)}/{len(verdicts)}"


def _refused(attempts: tuple[Attempt, ...]) -> str:
    return f"{sum(attempt.verdict is Verdict.FAILED for attempt in attempts)}/{len(attempts)}"
