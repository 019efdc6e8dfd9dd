"""Index rollouts recorded before full-text search existed."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from composer_web.rollouts.search import fulltext


class Command(BaseCommand):
    help = "Index the words of rollouts that are not indexed yet. Can be stopped and started again."

    def handle(self, *_: Any, **__: Any) -> None:
        done = left_out = 0
        for done, left_out in fulltext.backfill():
            self.stdout.write(f"{done} rollouts indexed, {left_out} without a readable trajectory")
        self.stdout.write(f"all done: {done} indexed, {left_out} left out")
