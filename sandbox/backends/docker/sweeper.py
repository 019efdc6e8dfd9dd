"""Remove containers and volumes that killed processes left with the engine."""

from __future__ import annotations

import shutil
from pathlib import Path

from sandbox.backends.docker import leases
from sandbox.backends.docker.engine import Engine


def sweep(engine: Engine, folder: Path) -> int:
    """Remove what processes left that are gone and kept their leases in `folder`; how many containers and volumes."""
    mine = leases.folder_id(folder)
    boxes, volumes = engine.labelled(leases.FOLDER_LABEL, mine)
    used = {labels.get(leases.LEASE_LABEL, "") for labels in (*boxes.values(), *volumes.values())}
    removed = 0

    def remove(lease: str) -> None:
        nonlocal removed
        removed += remove_labelled(engine, {leases.LEASE_LABEL: lease})
        for left in folder.glob(f"{lease}.*"):
            shutil.rmtree(left, ignore_errors=True)

    leases.sweep(folder, used - {""}, remove)
    return removed


def remove_labelled(engine: Engine, label: dict[str, str]) -> int:
    """Remove the containers and volumes with this label; how many."""
    ((name, value),) = label.items()
    boxes, volumes = engine.labelled(name, value)
    for container in boxes:
        engine.remove(container)
    _, volumes = engine.labelled(name, value)
    return len(boxes) + sum(engine.remove_volume(volume) for volume in volumes)
