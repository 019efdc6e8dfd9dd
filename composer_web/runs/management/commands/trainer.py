"""manage.py trainer: the supervised process that trains."""

from __future__ import annotations

import signal
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.ops.presence import Presence
from composer_web.runs.device_room import device_room
from composer_web.runs.trainer_process import AlreadyRunning, TrainerProcess


class Command(BaseCommand):
    help = "Take queued runs, one at a time, and train them here. TERM stops after the current step with a checkpoint."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--name", default="trainer", help="one process of each name and machine (default: trainer)")
        parser.add_argument("--once", action="store_true", help="return when no run wants a trainer")

    def handle(self, *args: Any, **options: Any) -> None:
        process = TrainerProcess(options["name"])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: process.stopping.set())
        room = device_room()
        presence = Presence("trainer", name=options["name"], detail=lambda: {"run": process.current, **room}).start()
        try:
            process.run_for_ever(once=options["once"])
        except AlreadyRunning as error:
            raise CommandError(str(error)) from error
        finally:
            presence.stop()
