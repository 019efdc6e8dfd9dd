"""manage.py health: the health page on the command line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.system.health import checks


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they would import every page and the whole API
    help = "Ask every part of the product whether it answers; exit code 1 when one does not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        found = checks()
        if options["json"]:
            self.stdout.write(json.dumps([asdict(check) for check in found], indent=1, default=str))
        else:
            for check in found:
                self.stdout.write(f"{'ok  ' if check.ok else 'FAIL'} {check.name:10} {check.message}")
        if not all(check.ok for check in found):
            raise CommandError("not everything answers")
