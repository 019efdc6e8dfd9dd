"""What the red team attacks: a built package with hidden pytest tests, and a repository with hidden calls."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sandbox.backends.base import Backend
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.packages import build_archive
from sandbox.tasks.spec import TaskSpec
from tests.redteam.base import TaskName
from tests.sandbox.grading.audit.sessions.repository import TASK
from tests.sandbox.grading.make import LEDGER, ledger_task
from tests.sandbox.shelf import PIN, put_toolchain, write_sdist

HASTY = TASK.model_copy(
    update={"id": "inventory-hasty", "verifier": TASK.verifier.model_copy(update={"timeout_seconds": 1.0})}
)
"""For exploits that use up the time."""


async def build(backend: Backend, environments: EnvironmentStore) -> dict[TaskName, TaskSpec]:
    """The tasks, ready in the store. Raises PackageError, SandboxError."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = write_sdist(folder / "ledger-1.2.tar.gz", LEDGER)
        cache = put_toolchain(folder / "downloads")
        built = await build_archive(environments, archive, PIN, backend=backend, cache=cache)
    return {"ledger": ledger_task(built), "inventory": TASK, "hasty": HASTY}
