"""manage.py ranks: this machine takes part in runs that are trained on several."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from composer_web.env import env
from composer_web.runs.whereabouts import ranks_folder


class Command(BaseCommand):
    help = (
        "Wait for runs with parallel.machines above 1 and compute this machine's ranks of them. Needs the data folder of the "
        "trainer under the same name, and no database."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        from trainer.parallel.follow import follow

        self.stdout.write(f"waiting for runs in {ranks_folder()} (OPENCOMPOSER_DATA={env().data})")
        follow(ranks_folder())
