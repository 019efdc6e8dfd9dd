"""manage.py ranks: run this machine as a node of multi-node training."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from composer_web.env import env
from composer_web.runs.paths import ranks_folder


class Command(BaseCommand):
    help = (
        "Wait for runs with parallel.max_nodes above 1 and compute this machine's ranks of them. Needs the data folder of the "
        "trainer under the same name, and no database."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        from trainer.distributed.elastic.node_agent import run_agent

        self.stdout.write(f"waiting for runs in {ranks_folder()} (OPENCOMPOSER_DATA={env().data})")
        run_agent(ranks_folder())
