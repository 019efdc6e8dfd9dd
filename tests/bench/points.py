"""Parts of a long bench, each kept when it is measured: a bench that was cut off goes on where it was.

A part is named by a key (a seed, an arm) and its outcome is one JSON file in `.data/bench-NAME/COMMIT-SETTINGS`: COMMIT is the
last one that touched what is measured, SETTINGS a digest of the bench's numbers. JOBS parts are measured at a time, each in
a process of its own; a second run of the bench beside the first would measure the same parts again.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from sandbox.tasks.files import replace_file

REPOSITORY = Path(__file__).parents[2]
MEASURED = (
    "trainer/learning",
    "trainer/rewards",
    "trainer/rollouts",
    "trainer/stages",
    "trainer/rl",
    "trainer/sft",
    "policies/base",
)
Point = dict[str, Any]


def folder(bench: str, settings: Mapping[str, object]) -> Path:
    """Where the points of a bench are kept, with these settings, at this commit. Raises CalledProcessError outside a checkout."""
    paths = [*MEASURED, f"tests/bench/runs/{bench.replace('-', '_')}.py"]
    command = ["git", "log", "-1", "--format=%h", "--", *paths]
    commit = subprocess.check_output(command, text=True, cwd=REPOSITORY).strip()
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return REPOSITORY / ".data" / f"bench-{bench}" / f"{commit}-{digest}"


def points(where: Path, keys: Sequence[str], make: Callable[[str, Path], Point]) -> dict[str, Point]:
    """The point of each key: what is kept in `where`, and `make(key, where)` for the rest. `make` is a module's function."""
    missing = [key for key in keys if not _at(where, key).exists()]
    if missing:
        jobs = min(len(missing), int(os.environ.get("JOBS", "1")))
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for future in [pool.submit(_measure, make, key, where) for key in missing]:
                future.result()
    return {key: json.loads(_at(where, key).read_text()) for key in keys}


def _at(where: Path, key: str) -> Path:
    return where / f"{key}.json"


def _measure(make: Callable[[str, Path], Point], key: str, where: Path) -> None:
    replace_file(_at(where, key), json.dumps(make(key, where)))
