"""Pages at the server: lists, the largest run, buckets of its charts, a trajectory of 2,000 turns."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable
from urllib.parse import urlencode

from django.test import Client

from composer_web.runs.charts.panels import RL
from composer_web.warm import warm
from tests.bench.web import tables
from tests.bench.web.web_data import LONGEST, World

BUCKETS = 240
"""As js/chart.js asks."""


def measure(arguments: argparse.Namespace, world: World) -> dict[str, float]:
    """p95 in milliseconds of the slowest address of each kind."""
    warm()  # as a server process does before its first request
    visitor = Client(SERVER_NAME="localhost")  # no test environment, whose copies of each template's context cost time
    visitor.force_login(world.user)
    run, rollout = f"/runs/{world.largest}/", f"/rollouts/{world.trajectory}/"
    charts = []
    for keys in (RL[0].keys, tuple(f"metric/{n}" for n in range(1, 4))):
        for axis in ("step", "time", "tokens"):
            charts.append({"keys": ",".join(keys), "axis": axis, "buckets": BUCKETS})
        charts.append(
            {"keys": ",".join(keys), "axis": "step", "buckets": BUCKETS, "from": LONGEST // 4, "to": LONGEST // 2}
        )
    kinds = {
        "list_p95_ms": [path for path, opens in tables.addresses() if opens],
        "run_page_p95_ms": [run],
        "buckets_p95_ms": [f"{run}metrics/?{urlencode(chart)}" for chart in charts],
        "trajectory_p95_ms": [rollout, f"{rollout}turns/?from=1000", f"{rollout}turns/?from=40"],
    }
    return {name: slowest(visitor, paths, arguments.requests) for name, paths in kinds.items()}


def slowest(visitor: Client, paths: Iterable[str], requests: int) -> float:
    worst = 0.0
    for path in paths:
        times, cpu = [], []
        for _ in range(requests + 1):
            began, used = time.perf_counter(), time.process_time()
            answer = visitor.get(path)
            times.append((time.perf_counter() - began) * 1000)
            cpu.append((time.process_time() - used) * 1000)
            assert answer.status_code == 200, f"{path}: {answer.status_code}"
        ordered = sorted(times[1:])  # the first fills caches that a running server has
        p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
        print(
            f"{p95:8.1f} ms p95 {ordered[len(ordered) // 2]:8.1f} p50 {sorted(cpu)[len(cpu) // 2]:7.1f} ms of processor  {path}",
            flush=True,
        )
        worst = max(worst, p95)
    return round(worst, 1)
