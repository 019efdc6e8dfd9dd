"""Reward parts of an operator's own, added while a run goes on.

Each `*.py` file in the folder that OPENCOMPOSER_REWARDS names registers parts as this package does. Before a rollout is
scored, files that are new or changed are read; a part joins the reward once the run's settings give it a weight
(`extra`). A changed file must raise its parts' versions, so that a stored value always says what computed it. Files run
inside the workers: only people who may change the installation may write to that folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path
from types import ModuleType

from trainer.rewards.parts import base

FOLDER = "OPENCOMPOSER_REWARDS"

loaded_files: dict[Path, tuple[tuple[int, int], str]] = {}
"""File → (modification time and size, SHA-256) as it was read."""
_reading = threading.Lock()


def refresh() -> None:
    """Read what is new or changed in the folder. Raises RewardError; parts that were registered before stay."""
    named = os.environ.get(FOLDER)
    if not named:
        return
    folder = Path(named)
    if not folder.is_dir():
        raise base.RewardError(f"{FOLDER}={named} is no folder; create it, or unset the variable")
    with _reading:
        for path in sorted(folder.glob("*.py")):
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if path in loaded_files and loaded_files[path][0] == stamp:
                continue
            text = path.read_bytes()
            digest = hashlib.sha256(text).hexdigest()
            if path not in loaded_files or loaded_files[path][1] != digest:
                _load(path, text)
            loaded_files[path] = (stamp, digest)


def _load(path: Path, text: bytes) -> None:
    """Run the file apart from the registry, and take its parts only when all of it is right."""
    whole = base.REGISTRY
    before = {name: part for name, part in whole.items() if part.source == str(path)}
    others = {name: part for name, part in whole.items() if part.source != str(path)}
    trial = dict(others)
    module = ModuleType(f"opencomposer_rewards_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pydantic look their module up
    token = base._target.set(trial)
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)  # noqa: S102
    except Exception as error:
        raise base.RewardError(f"reward parts of {path.name} cannot be read: {error!r}") from error
    finally:
        base._target.reset(token)
    made = {key: part for key, part in trial.items() if key not in others}
    for key, part in made.items():
        if key in before and part.version <= before[key].version:
            raise base.RewardError(
                f"{path.name} was changed and its part {key!r} still has version {part.version}; raise the version"
            )
    own = {key: base.Registered(part.part, part.version, str(path)) for key, part in made.items()}
    base.REGISTRY = others | own  # at once: rollouts are scored in other threads
