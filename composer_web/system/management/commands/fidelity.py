"""manage.py fidelity: measure on this machine how closely a sandbox resembles a developer's machine."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.system import fidelity


class Command(BaseCommand):
    help = "Compare a fresh sandbox with a recorded developer's machine: score, tells with their remedies, classifier."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--count", type=int, choices=range(2, 25), metavar="2-24", help="checkouts (default 24)")
        parser.add_argument("--last", action="store_true", help="do not measure: show what was measured last")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = fidelity.kept() if options["last"] else [fidelity.measure(count=options["count"])]
        except fidelity.NotMeasured as error:
            raise CommandError(str(error)) from error
        if not found:
            raise CommandError("nothing was measured yet; leave --last out to measure now")
        for one in found:
            if options["json"]:
                self.stdout.write(one.model_dump_json(indent=1))
            elif one.result:
                self._say(one)
            else:
                self.stdout.write(f"{one.backend}: not measured: {one.problem}")

    def _say(self, one: fidelity.Kept) -> None:
        assert one.result is not None, "there is one to say"
        result, verdict = one.result, one.result.verdict
        self.stdout.write(
            f"{one.backend}: score {verdict.score:g} of 100, {len(verdict.tells)} of {verdict.facets} facets tell; first"
            f" turns AUC {result.early.auc:g} ({result.early.at_chance()} of {len(result.early.commands)} commands at"
            f" chance), suspicious agent AUC {result.curious.auc:g}; {result.measured_at:%Y-%m-%d %H:%M} UTC"
        )
        for tell in verdict.tells:
            self.stdout.write(f"  {tell.weight} {tell.title}: {tell.seen}, there {tell.expected}")
            self.stdout.write(f"    {tell.effort}: {tell.remedy}")
