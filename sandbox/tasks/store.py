"""Task bundles on disk, each under the hash of its content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.errors import TaskInvalid
from sandbox.tasks.files import replace_file
from sandbox.tasks.spec import TaskSpec

REMEDY = "Delete the file and make the task again"


class TaskList(BaseModel):
    """The bundle hashes of a generator's finished run, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    hashes: tuple[str, ...]


class TaskStore:
    """`<root>/bundles/<hash>.json` and `<root>/lists/<name>.json`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._bundles = root / "bundles"
        self._lists = root / "lists"

    def save(self, task: TaskSpec) -> str:
        """Keep a bundle; returns its hash."""
        replace_file(self._bundles / f"{task.bundle_hash}.json", task.model_dump_json())
        return task.bundle_hash

    def load(self, bundle_hash: str) -> TaskSpec:
        """The bundle of that hash. Raises TaskInvalid when it is absent, unreadable or not what was hashed."""
        return load_bundle(self._bundles / f"{bundle_hash}.json", expected=bundle_hash)

    def save_list(self, name: str, tasks: Sequence[TaskSpec]) -> None:
        replace_file(
            self._lists / f"{name}.json", TaskList(hashes=tuple(t.bundle_hash for t in tasks)).model_dump_json()
        )

    def has_list(self, name: str) -> bool:
        return (self._lists / f"{name}.json").is_file()

    def load_list(self, name: str) -> list[TaskSpec]:
        """The tasks of a list. Raises TaskInvalid."""
        try:
            listed = TaskList.model_validate_json((self._lists / f"{name}.json").read_bytes())
        except (OSError, ValidationError) as error:
            raise TaskInvalid(f"task list {name} is unreadable: {error}", remedy=REMEDY) from error
        return [self.load(bundle_hash) for bundle_hash in listed.hashes]


def load_bundle(path: Path, *, expected: str | None = None) -> TaskSpec:
    """A task bundle from a file, checked against its hash if one is given. Raises TaskInvalid with the cause."""
    try:
        task = TaskSpec.model_validate_json(path.read_bytes())
    except OSError as error:
        raise TaskInvalid(
            f"task bundle {path.name} cannot be read: {error.strerror or error}", remedy=REMEDY
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise TaskInvalid(f"task bundle {path.name} is not valid: {where}: {first['msg']}", remedy=REMEDY) from error
    if expected is not None and task.bundle_hash != expected:
        message = f"task bundle {path.name} was changed: its hash is {task.bundle_hash[:16]}, not {expected[:16]}"
        raise TaskInvalid(message, remedy=REMEDY)
    return task
