"""What a process must not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_rollout_and_train_workers_import_no_torch() -> None:
    """A rollout worker needs no model, and a train worker starts its trainer as a process of its own."""
    code = (
        "import django, json, sys; django.setup()\n"
        "import composer_web.rollouts.worker.execution, composer_web.runs.training.tasks\n"
        "print(json.dumps([name for name in ('torch', 'transformers') if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "composer_web.settings"},
        capture_output=True,
        text=True,
        timeout=120,
        cwd=REPOSITORY,
        check=True,
    )
    assert json.loads(done.stdout) == []
