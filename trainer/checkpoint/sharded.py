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

from trainer.checkpoint.layout import SHARDS

OPTIMIZER = "optimizer"
"""Prefix of the optimizer's tensors."""
FAILURES = (OSError, ValueError, RuntimeError, TimeoutError, CheckpointException, SafetensorError)
"""Errors of writing and reading."""


def optimizer_entries(reader: FileSystemReader) -> dict[str, TensorStorageMetadata]:
    """What is known of each tensor of the optimizer, by name, without reading it. Raises `FAILURES`."""
    prefix = f"{OPTIMIZER}."
    return {
        name.removeprefix(prefix): entry
        for name, entry in reader.read_metadata().state_dict_metadata.items()
        if name.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
    }


def read_optimizer(path: Path) -> dict[str, Tensor]:
    """The full optimizer state of a sharded checkpoint, for a run on one process. Raises OSError."""
    reader = FileSystemReader(path / SHARDS)
    try:
        content: dict[str, Any] = {
            f"{OPTIMIZER}.{name}": torch.empty(entry.size, dtype=entry.properties.dtype)
            for name, entry in optimizer_entries(reader).items()
        }
        load(content, storage_reader=reader, no_dist=True)
    except FAILURES as error:
        raise OSError(f"{SHARDS}: {error}") from error
    return {name.removeprefix(f"{OPTIMIZER}."): tensor for name, tensor in content.items()}
