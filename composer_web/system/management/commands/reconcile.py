"""manage.py reconcile: run the reconciler manually."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.system.reconcile import Busy, reconcile


class Command(BaseCommand):
    help = "Find work that nobody does any more and start it again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            findings = reconcile(dry_run=options["dry_run"])
        except Busy as error:
            raise CommandError(str(error)) from error
        for finding in findings:
            self.stdout.write(f"{finding.target}: {finding.problem}: {finding.action}")
        self.stdout.write(
            f"{len(findings)} findings" + (" (dry run: nothing was changed)" if options["dry_run"] else "")
        )
