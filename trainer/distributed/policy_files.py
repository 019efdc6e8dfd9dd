"""Writes a policy's weights from the ranks, one file at a time, so that no rank ever holds all of them.

Each rank copies its own part, and training continues. Concurrently, rank 0 requests one file after the other: every
rank sends its words of that file, and rank 0 assembles, writes and frees them. The result has the library's layout:
safetensors of bounded size, with an index where there are several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, distributed
from transformers import PreTrainedModel

from trainer.distributed.parallel_dims import Meshes
from trainer.distributed.publish import Source, published_slices, shape_of, sources_of
from trainer.policy.store import INDEX, WEIGHTS
from trainer.weights.tensors import Slice

FILE_BYTES = 2 << 30
"""Maximum bytes per file, unless a single tensor is larger."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive words of a named tensor, as bytes."""

    words: Tensor
    start: int
    """Offset of the first byte in the whole tensor."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A snapshot of a policy, distributed over the ranks."""

    whole: Mapping[str, Tensor]
    """Shape and dtype of all tensors to write, without memory; equal on every rank."""
    files: Mapping[str, list[str]]
    """Tensor names by file."""
    index: Mapping[str, Any] | None
    mine: dict[str, Part]
    """This rank's parts; removed as they are sent."""
    places: list[dict[str, tuple[int, int]]]
    """Offset and size in bytes of each rank's parts, by name."""


def stage(
    model: PreTrainedModel, meshes: Meshes, state: Mapping[str, Tensor], *, file_bytes: int = FILE_BYTES
) -> Staged:
    """Copy this rank's part of `state` and exchange the placement. A collective call. Raises ParallelRefused."""
    kept = _without_ties(model, state)
    mine = {name: _copied(part) for name, part in published_slices(model, meshes, kept).items()}
    whole = {name: _outline(source, kept[source.name]) for name, source in sources_of(model, kept).items()}
    pattern = WEIGHTS.replace(".safetensors", "{suffix}.safetensors")
    split = split_torch_state_dict_into_shards(whole, filename_pattern=pattern, max_shard_size=file_bytes)
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename} if split.is_sharded else None
    places = meshes.gathered({name: (part.start, part.words.numel()) for name, part in mine.items()})
    return Staged(whole, split.filename_to_tensors, index, mine, places)


def write(staged: Staged, folder: Path, rank: int, group: distributed.ProcessGroup) -> None:
    """Rank 0 creates `folder` and writes; the others send to it, over a group with no other use.

    Raises OSError, SafetensorError on rank 0, which still receives all data, so that no other rank blocks.
    """
    failed: OSError | SafetensorError | None = None
    try:
        if rank == 0:
            folder.mkdir()
    except OSError as error:
        failed = error
    for file, names in staged.files.items():
        if rank != 0:
            for name in names:
                if name in staged.mine:
                    distributed.send(staged.mine.pop(name).words, dst=0, group=group)
            continue
        tensors = merge_parts(staged, names, group)
        try:
            if failed is None:
                save_file(tensors, folder / file, metadata={"format": "pt"})
        except (OSError, SafetensorError) as error:
            failed = error
        del tensors
    if failed is not None:
        raise failed
    if rank == 0 and staged.index is not None:
        text = json.dumps(staged.index, indent=2, sort_keys=True) + "\n"
        (folder / INDEX).write_text(text, encoding="utf-8")


def merge_parts(staged: Staged, names: list[str], group: distributed.ProcessGroup) -> dict[str, Tensor]:
    """Assemble the full tensors of one file from all ranks' parts."""
    tensors = {name: torch.empty_like(staged.whole[name], device="cpu") for name in names}
    flat = {name: tensor.reshape(-1).view(torch.uint8) for name, tensor in tensors.items()}
    for name in names:
        own = staged.mine.pop(name, None)
        if own is not None:
            flat[name][own.start : own.start + own.words.numel()] = own.words
    for rank, has in enumerate(staged.places):
        for name in names if rank else ():
            if name in has:
                start, size = has[name]
                distributed.recv(flat[name][start : start + size], src=rank, group=group)
    return tensors


def _without_ties(model: PreTrainedModel, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor once, under the name that the library keeps."""
    copies = set(getattr(model, "all_tied_weights_keys", None) or ())
    found: dict[int, list[str]] = {}
    for name, tensor in state.items():
        found.setdefault(id(tensor), []).append(name)
    kept = {next((name for name in names if name not in copies), names[0]) for names in found.values()}
    return {name: tensor for name, tensor in state.items() if name in kept}


def _outline(source: Source, tensor: Tensor) -> Tensor:
    return torch.empty(shape_of(source, tensor), dtype=tensor.dtype, device="meta")


def _copied(part: Tensor | Slice) -> Part:
    given = part if isinstance(part, Slice) else Slice(part, tuple(part.shape), 0)
    local = given.local.detach()
    words = local.to("cpu", copy=True).contiguous().reshape(-1)
    return Part(words.view(torch.uint8), given.start * local.element_size())
