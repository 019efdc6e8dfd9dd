"""manage.py fork: continue a recorded rollout from one of its turns."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from composer_web.ops.artifacts import ArtifactError
from composer_web.ops.errors import UserError
from composer_web.rollouts import selectors
from composer_web.rollouts.forks import request_fork
from composer_web.rollouts.models import GROUP_OPEN


class Command(BaseCommand):
    help = "Continue ROLLOUT after its first TURN turns; waits and prints the continuations as JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("rollout", type=int)
        parser.add_argument("turn", type=int)
        parser.add_argument("--count", type=int, default=4, help="continuations")
        parser.add_argument("--policy", default="", help="name or name@version; default: the newest of the run")
        parser.add_argument("--timeout", type=float, default=1800.0, help="seconds; 0 does not wait")

    def handle(self, *args: Any, **o: Any) -> None:
        try:
            rollout = selectors.get_rollout(o["rollout"])
            fork = request_fork(rollout=rollout, turn=o["turn"], count=o["count"], reference=o["policy"])
            end = time.monotonic() + o["timeout"]
            while o["timeout"] and fork.group.state in GROUP_OPEN:
                if time.monotonic() > end:
                    raise CommandError(f"fork {fork.pk} is {fork.group.state} after {o['timeout']:.0f} s")
                time.sleep(0.5)
                fork = selectors.get_fork(fork.pk)
        except (UserError, ArtifactError) as error:
            raise CommandError(str(error)) from error
        if fork.group.state == "dropped":
            raise CommandError(f"fork {fork.pk} failed: {fork.group.cause}")
        rows = selectors.of_group(fork.group).values("id", "verdict", "reward", "stop_reason", "turns")
        shown = {"id": fork.pk, "group": fork.group.pk, "state": fork.group.state, "replayed": fork.replayed}
        self.stdout.write(json.dumps({**shown, "rollouts": list(rows)}))
