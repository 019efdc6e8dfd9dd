"""Reads the files that several ranks write together, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

SHARDS = "shards"
"""Folder of these files in a checkpoint."""
OPTIMIZER = "optimizer"
"""Prefix of the optimizer's tensors."""
FAILURES = (OSError, ValueError, RuntimeError, TimeoutError, CheckpointException, SafetensorError)
"""Errors of writing and reading."""


def read_optimizer(path: Path) -> dict[str, Tensor]:
    """The full optimizer state of a sharded checkpoint, for a run on one process. Raises OSError."""
    reader = FileSystemReader(path / SHARDS)
    prefix = f"{OPTIMIZER}."
    try:
        content: dict[str, Any] = {
            name: torch.empty(entry.size, dtype=entry.properties.dtype)
            for name, entry in reader.read_metadata().state_dict_metadata.items()
            if name.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
        }
        load(content, storage_reader=reader, no_dist=True)
    except FAILURES as error:
        raise OSError(f"{SHARDS}: {error}") from error
    return {name.removeprefix(prefix): tensor for name, tensor in content.items()}
