"""manage.py mirror: metrics of all runs in TensorBoard, MLflow or W&B."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.mirrors.base import MirrorError
from composer_web.mirrors.feeding import KINDS, Feeder, maker


class Command(BaseCommand):
    help = "Copy the metrics of all runs into another tool, each point once, also over restarts. TERM ends it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kind", choices=list(KINDS))
        parser.add_argument(
            "to",
            help="tensorboard: log folder; mlflow: tracking address; wandb: a project, or a folder with a / (offline)",
        )
        parser.add_argument("--every", type=float, default=15.0, metavar="SECONDS", help="pause between looks")
        parser.add_argument("--once", action="store_true", help="copy what is there and return")

    def handle(self, *args: Any, **options: Any) -> None:
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        try:
            maker(options["kind"])
            feeder = Feeder(options["kind"], options["to"])
            with feeder.alone():
                while True:
                    if count := feeder.feed():
                        self.stdout.write(f"{count} points")
                    if options["once"] or stopping.wait(options["every"]):
                        return
        except MirrorError as error:
            raise CommandError(str(error)) from error
