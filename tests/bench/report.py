"""The one line that every bench prints last. With RECORD=1 it also goes into the history (`history.py`)."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from typing import Literal

from tests.bench import history

Goal = tuple[Literal["<=", ">=", "=="], float]


def emit(
    bench: str,
    metrics: Mapping[str, float],
    *,
    goals: Mapping[str, Goal],
    peers: Mapping[str, float] | None = None,
    conditions: Mapping[str, object] | None = None,
) -> None:
    """Print the result as one JSON object; `conditions` say more about how it was measured, beside the machine."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    machine = {
        "cpus": os.cpu_count(),
        "arch": platform.machine(),
        "kernel": platform.release().split("-")[0],
        "load_1m": round(os.getloadavg()[0], 2),
        **(conditions or {}),
    }
    result = {
        "bench": bench,
        "metrics": dict(metrics),
        "goals": {name: list(goal) for name, goal in goals.items()},
        "peers": dict(peers or {}),
        "machine": machine,
        "commit": commit.stdout.strip(),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    if asked := os.environ.get("RECORD"):
        command = os.environ.get("BENCH_COMMAND") or f"python -m {bench}"
        history.append(result, command=command, note=os.environ.get("NOTE", ""), dirty_too=asked == "dirty")
