"""Deployment registry of a server: one JSON file from which a killed server restores its deployments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from trainer.inference.contract import DeploymentSpec

SPECS = TypeAdapter(list[DeploymentSpec])


def remember(path: Path, specs: Sequence[DeploymentSpec]) -> None:
    """Replace the file atomically; it is durable when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with open(temporary, "wb") as file:
        file.write(SPECS.dump_json(list(specs), indent=1))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def remembered(path: Path) -> list[DeploymentSpec]:
    return SPECS.validate_json(path.read_bytes()) if path.exists() else []
