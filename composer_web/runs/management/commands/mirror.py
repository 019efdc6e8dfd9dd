"""manage.py mirror: copy the metrics of all runs to TensorBoard, MLflow or W&B."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import InterfaceError, OperationalError, connections

from composer_web.core.queue.heartbeats import Presence
from composer_web.env.addresses import MIRRORS
from composer_web.mirrors.base import MirrorError
from composer_web.mirrors.feeding import Feeder, maker


class Command(BaseCommand):
    help = "Copy the metrics of all runs into another tool, each point once, also over restarts. TERM ends it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kind", choices=list(MIRRORS))
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
                if options["once"]:
                    self._feed(feeder)
                    return
                presence = Presence("mirror", name=options["kind"]).start()
                try:
                    self._go_on(feeder, stopping, options["every"])
                finally:
                    presence.stop()
        except MirrorError as error:
            raise CommandError(str(error)) from error

    def _go_on(self, feeder: Feeder, stopping: threading.Event, every: float) -> None:
        """Keep feeding while a tool or the database is temporarily unavailable. Missed values are sent later."""
        while True:
            try:
                self._feed(feeder)
            except (MirrorError, OperationalError, InterfaceError) as error:
                self.stderr.write(f"{str(error).strip()}; it is tried again in {every:g} s")
                feeder.mirrors.clear()
                if not isinstance(error, MirrorError):
                    connections.close_all()
            if stopping.wait(every):
                return

    def _feed(self, feeder: Feeder) -> None:
        if count := feeder.feed():
            self.stdout.write(f"{count} points")
