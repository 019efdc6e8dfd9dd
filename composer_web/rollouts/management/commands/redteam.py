"""manage.py redteam: print the red-team page. Exits with an error on any unexpected result."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.env import env
from composer_web.rollouts.http.redteam_views import lines_of
from sandbox.grading.redteam import load


class Command(BaseCommand):
    help = "Show the last table that `make redteam` kept."

    def handle(self, *args: Any, **options: Any) -> None:
        table = load(env().data)
        if table is None:
            raise CommandError("no table of the red team in the data folder; make redteam")
        for line in lines_of(table):
            cells = [f"{row.backend} {row.exploit.verdict}/{row.honest.verdict}" if row else "-" for row in line.cells]
            found = ", ".join(rule for rule, _ in line.rules) or "nothing found"
            self.stdout.write(f"{line.id:<4} {'  '.join(cells)}  {found}")
            for fault in line.faults:
                self.stdout.write(f"     ! {fault}")
        count = len(table.rows)
        self.stdout.write(
            f"{table.at:%Y-%m-%d %H:%M} UTC, commit {table.commit}: {table.scored} of {count} exploits score, "
            f"{table.honest_passed} of {count} honest runs pass"
        )
        if table.bad:
            raise CommandError(f"{len(table.bad)} rows are not as they have to be")
