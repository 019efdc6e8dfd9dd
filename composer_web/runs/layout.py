"""Where a run keeps its files and how its deployment is called."""

from __future__ import annotations

from pathlib import Path

from composer_web.env import env
from composer_web.runs.models import Run


def weights_folder(run: Run) -> Path:
    """Weight store that the run publishes into."""
    return env().data / "weights" / f"run-{run.pk}"


def checkpoints_folder(run: Run) -> Path:
    return env().data / "checkpoints" / f"run-{run.pk}"


def work_folder(run: Run) -> Path:
    """Other files of the run: recorded expert episodes, caches."""
    return env().data / "runs" / f"run-{run.pk}"


def deployment_name(run: Run) -> str:
    """Inference deployment that follows the run's weights."""
    return f"run-{run.pk}"
