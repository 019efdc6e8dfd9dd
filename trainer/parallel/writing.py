"""Writing a policy's weights from the ranks, one file at a time, so that no rank ever holds the whole.

Each rank keeps a copy of its own part, and training goes on. Beside it rank 0 asks for one file after the other: every rank
sends the words that it has of it, rank 0 puts them together, writes them and lets go of them. What comes out is the
library's layout: safetensors of bounded size, with an index where there are several.
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

from trainer.parallel.mesh import Meshes
from trainer.parallel.publish import Source, published, shape_of, sources_of
from trainer.policy.store import INDEX, WEIGHTS
from trainer.weights.tensors import Slice

FILE_BYTES = 2 << 30
"""Most bytes of a file, unless a single tensor has more."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive words of a named tensor, as bytes."""

    words: Tensor
    start: int
    """First byte of them in the whole tensor."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A policy at one moment, spread over the ranks."""

    whole: Mapping[str, Tensor]
    """Shape and dtype of everything that is written, without memory; the same on every rank."""
    files: Mapping[str, list[str]]
    """Names of what each file holds."""
    index: Mapping[str, Any] | None
    mine: dict[str, Part]
    """What this rank has; emptied as it is sent."""
    places: list[dict[str, tuple[int, int]]]
    """First byte and size of what each rank has, by name."""


def stage(
    model: PreTrainedModel, meshes: Meshes, state: Mapping[str, Tensor], *, file_bytes: int = FILE_BYTES
) -> Staged:
    """A copy of this rank's part of `state`, and who has what. All ranks call together. Raises ParallelRefused."""
    kept = _without_ties(model, state)
    mine = {name: _copied(part) for name, part in published(model, meshes, kept).items()}
    whole = {name: _outline(source, kept[source.name]) for name, source in sources_of(model, kept).items()}
    pattern = WEIGHTS.replace(".safetensors", "{suffix}.safetensors")
    split = split_torch_state_dict_into_shards(whole, filename_pattern=pattern, max_shard_size=file_bytes)
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename} if split.is_sharded else None
    places = meshes.gathered({name: (part.start, part.words.numel()) for name, part in mine.items()})
    return Staged(whole, split.filename_to_tensors, index, mine, places)


def write(staged: Staged, folder: Path, rank: int, group: distributed.ProcessGroup) -> None:
    """Rank 0 makes `folder` and writes to it, the others send to it, over a group that nothing else uses.

    Raises OSError, SafetensorError on rank 0; the others are heard to the end then, too, and wait for nobody.
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
        tensors = _together(staged, names, group)
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


def _together(staged: Staged, names: list[str], group: distributed.ProcessGroup) -> dict[str, Tensor]:
    """The whole tensors of one file, of everybody's parts."""
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
