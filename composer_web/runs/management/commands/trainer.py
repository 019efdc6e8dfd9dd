"""manage.py trainer: the process that a train worker starts for a claimed run."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.runs.training.wakes import Wakes


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they would import every page and the whole API
    help = (
        "Train one run under a lease that a train worker holds. Started by the worker, which wakes it over its standard input; "
        "start `celery -A composer_web worker -Q train --pool threads -c 1` instead."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", type=int)
        parser.add_argument("--owner", required=True, help="who holds the run's lease")
        parser.add_argument("--token", type=int, required=True, help="fencing token of that lease")

    def handle(self, *args: Any, **options: Any) -> None:
        if sys.stdin.isatty():
            raise CommandError(f"a train worker starts this, not a person: {self.help}")
        wakes = Wakes()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: wakes.stop())
        wakes.listen(sys.stdin.buffer)
        from composer_web.runs.training.log_shipping import LogShipper

        process = f"trainer@{options['owner'].partition('@')[2]}"
        shipper = LogShipper(process=process, run_id=options["run"]).start()
        try:
            from composer_web.runs.training.trainer_process import train  # loads torch: after the worker can be heard

            trained = train(run_id=options["run"], owner=options["owner"], token=options["token"], wakes=wakes)
        finally:
            shipper.stop()
        if not trained:
            raise CommandError("the run went to another worker, or Postgres was away", returncode=3)
