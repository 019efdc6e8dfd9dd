"""`make bench NAME=web`: pages, charts, trajectories, live updates and ingest on a large installation.

A throw-away Postgres and Valkey are filled (`tables_data`, `web_data`): 1,000,000 rollouts, 2,000 runs, 50 million metric
points, 2 million of them in the largest run. Then, each a part (`ARGS="--parts pages,ingest"`, all by default):

* `pages`: time from request to answer at the server, for every list as it opens, the largest run, a chart's buckets over each
  axis and range, and a trajectory of 2,000 turns; p95 of the slowest address (`web_pages`);
* `ingest`: metric points and finished rollouts with their trajectories, by as many writers as there are cores (`web_ingest`);
* `live`: 100 pages watch a run of 40 metrics at 50 steps a second: from the commit of a point to its answer in the
  page; what they hold in the end against a fresh fetch; then the server is killed and all come back (`web_live`);
* `browser`: Chromium opens the run (time, kB over the wire, blocking time, live updates, layout shifts) and scrolls the
  trajectory (`web_browser`);
* `clicks`: clicks and keys of the daily jobs, on a small product of its own (`web_clicks`);
* `gateway`, before all: what the gateway adds to the first token, paired with the engine asked directly (`gateway`).

Postgres does not wait for the disk here (the throw-away server of the tests), as the printed conditions say.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

from scripts.stack import throwaway
from tests.bench import report
from tests.bench.web import gateway, web_clicks

GOALS: dict[str, report.Goal] = {
    "list_p95_ms": ("<=", 200.0),
    "run_page_p95_ms": ("<=", 250.0),
    "buckets_p95_ms": ("<=", 150.0),
    "trajectory_p95_ms": ("<=", 150.0),
    "interactive_ms": ("<=", 1500.0),
    "scroll_task_ms_max": ("<=", 100.0),
    "script_kb": ("<=", 150.0),
    "run_page_kb": ("<=", 600.0),
    "tbt_ms": ("<=", 300.0),
    "update_ms": ("<=", 50.0),
    "cls_max": ("<=", 0.02),
    "live_p95_ms": ("<=", 1000.0),
    "live_lost": ("==", 0.0),
    "live_cores": ("<=", 1.0),
    "ingest_points_per_s": (">=", 200_000.0),
    "rollouts_per_s": (">=", 300.0),
    **gateway.GOALS,
    **web_clicks.GOALS,
}
PARTS = ("gateway", "clicks", "pages", "ingest", "live", "browser")
"""In their order. The gateway and the clicks come first, with services of their own: while Postgres still writes and cleans up
what the others left, half of this machine would not be theirs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--points", type=int, default=50_000_000, help="metric points of all runs")
    parser.add_argument("--requests", type=int, default=20, help="measured requests of each address")
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each timed stretch")
    parser.add_argument("--kept", action="store_true", help="use the services of the environment, filled if empty")
    arguments = parser.parse_args()
    wanted = arguments.parts.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    if arguments.kept:
        measure(arguments, wanted)
        return
    with throwaway.services(large=True) as variables:
        os.environ.update(variables)
        measure(arguments, wanted)


def measure(arguments: argparse.Namespace, wanted: list[str]) -> None:
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "composer_web.settings"
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests.bench.web import web_browser, web_data, web_ingest, web_live, web_pages

    call_command("migrate", verbosity=0)
    metrics: dict[str, float] = {}
    for name in (name for name in ("gateway", "web_clicks") if name.removeprefix("web_") in wanted):
        found = _apart(name)
        print(f"{name}: {found}", flush=True)
        metrics |= found
    if not set(wanted) - {"gateway", "clicks"}:
        report.emit("web", metrics, goals={name: goal for name, goal in GOALS.items() if name in metrics})
        return
    began = time.monotonic()
    world = web_data.world(arguments)
    print(f"filled in {time.monotonic() - began:.0f} s: {world.said}", flush=True)
    parts: dict[str, Callable[[argparse.Namespace, web_data.World], dict[str, float]]] = {
        "pages": web_pages.measure,
        "ingest": web_ingest.measure,
        "live": web_live.measure,
        "browser": web_browser.measure,
    }
    for name in (name for name in PARTS if name in wanted and name in parts):
        found = parts[name](arguments, world)
        print(f"{name}: {found}", flush=True)
        metrics |= found
    connection.close()
    connection.close_pool()
    goals = {name: goal for name, goal in GOALS.items() if name in metrics}
    report.emit("web", metrics, goals=goals, conditions=world.conditions)


def _apart(name: str) -> dict[str, float]:
    """A part with services of its own."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.web.{name}"], stdout=subprocess.PIPE, text=True, check=True
    )
    metrics: dict[str, float] = json.loads(done.stdout.splitlines()[-1])["metrics"]
    return metrics


if __name__ == "__main__":
    main()
