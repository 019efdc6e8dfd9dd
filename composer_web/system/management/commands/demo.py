"""`manage.py demo`: run the demo and print its figures as one JSON line."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.core.errors import UserError
from composer_web.system.demo import DemoFailed, run_demo


class Command(BaseCommand):
    help = "Mid-training, SFT and RL of the toy policy, as runs of the product; the last line is JSON"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--new", action="store_true", help="begin anew instead of going on with the last one")
        parser.add_argument("--seed", type=int, default=0)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            result = run_demo(new=options["new"], seed=options["seed"])
        except (DemoFailed, UserError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(result))
