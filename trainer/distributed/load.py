"""Sharded loading: each rank reads only the weights that it will hold.

    model_of   the model without memory for its weights (on the meta device)
    shard      shards it (`fsdp.py`), which costs nothing yet
    fill       allocates this rank's parts and reads them from the files
    follow     later reads a published version into the same memory

The library's loader also reads names of older checkpoints, quantized ones and more. Any folder that differs from what
its class writes today goes to that loader, which reads it whole or reports the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from transformers import PreTrainedModel

from trainer import policy as policies
from trainer.distributed.publish import Source, is_stack, pieces, shape_of, sources_of
from trainer.errors import ParallelRefused
from trainer.policy.slices import WeightFiles, outline
from trainer.policy.store import load_config
from trainer.weights import WeightStore
from trainer.weights.sections import Wanted


class Words(Protocol):
    """Named tensors that can be read in part."""

    def read_into(self, target: Tensor, name: str, offset: tuple[int, ...]) -> None:
        """Fill `target` from tensor `name`, starting at `offset`."""
        ...


Names = Mapping[Source, str]
"""Names in the files by their location in memory."""


def model_of(folder: Path, *, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """`policies.load_model` for ranks: call `fill` after the model is sharded. Raises PolicyUnreadable."""
    folder = Path(folder)
    config = load_config(folder)
    with WeightFiles(folder) as files:
        try:
            model = outline(folder, config, dtype)
        except (ValueError, RuntimeError, TypeError, OSError):
            model = None  # the library's loader comes to the same, and says it in the words of one process
        fits = model is not None and _fits(model, files)
    if model is not None and fits:
        return model
    return policies.load_model(folder, dtype=dtype)


load = partial(policies.load, read=model_of)
"""`policies.load` for ranks."""


def _fits(model: PreTrainedModel, files: WeightFiles) -> bool:
    """Whether the files hold exactly what the class writes: its names, shapes, and formats that round to its own."""
    state = model.state_dict(keep_vars=True)
    try:
        sources = sources_of(model, state)
    except ParallelRefused:
        return False
    names = {source: name for name, source in sources.items()}
    wanted: dict[str, tuple[int, ...]] = {}
    for aliases in _tied(state):
        tensor = state[aliases[0]]
        stored = [name for name in aliases if all(names[s] in files.shapes for s in _sources(name, tensor))]
        if len(stored) != 1 or not tensor.is_floating_point():
            return False
        wanted |= {names[source]: shape_of(source, tensor) for source in _sources(stored[0], tensor)}
    ignored = [re.compile(pattern) for pattern in getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()]
    surplus = [name for name in files.shapes.keys() - wanted.keys() if not any(p.search(name) for p in ignored)]
    return not surplus and all(files.shapes[n] == shape and files.is_float(n) for n, shape in wanted.items())


def _tied(state: Mapping[str, Tensor]) -> Iterable[list[str]]:
    """All names of each tensor."""
    found: dict[int, list[str]] = {}
    for name, tensor in state.items():
        found.setdefault(id(tensor), []).append(name)
    return found.values()


def _sources(name: str, tensor: Tensor) -> list[Source]:
    """Checkpoint sources of the tensor `name`."""
    if not is_stack(name):
        return [Source(name)]
    shape = tuple(tensor.shape)
    return [piece.source for piece in pieces(name, shape, shape, (0, 0, 0))]


@contextmanager
def as_if_there(model: nn.Module) -> Iterator[None]:
    """Context for adding adapters to a model of `model_of`: peft places them on their base's device. Inside, each
    tensor is one number on the CPU, expanded to full shape, so adapters initialise as for a materialised base.
    """
    missing = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter.is_meta
    ]
    for module, name, parameter in missing:
        one = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
        module._parameters[name] = nn.Parameter(one, requires_grad=parameter.requires_grad)
    try:
        yield
    finally:
        for module, name, parameter in missing:
            stood_in = cast(nn.Parameter, module._parameters[name])
            parameter.requires_grad_(stood_in.requires_grad)  # adapters freeze their base
            module._parameters[name] = parameter


@torch.no_grad()
def fill(model: PreTrainedModel, folder: Path, device: torch.device) -> int:
    """Materialise meta tensors on `device` and read them from `folder`; return the bytes read.

    `model` comes from `model_of`, sharded or not, with or without adapters. Raises PolicyUnreadable.
    """
    state = model.state_dict(keep_vars=True)
    empty = {name: tensor for name, tensor in state.items() if tensor.is_meta}
    if not empty:
        return 0
    plain = {name.replace(".base_layer.", "."): tensor for name, tensor in empty.items()}
    names = {source: name for name, source in sources_of(model, plain).items()}
    made: dict[int, Tensor] = {}
    with WeightFiles(folder) as files:
        for aliases in _tied(plain):
            tensor = plain[aliases[0]]
            stored = next(name for name in aliases if names[_sources(name, tensor)[0]] in files.shapes)
            made[id(tensor)] = _read(stored, tensor, device, files, names)
    for module in model.modules():
        for own in (module._parameters, module._buffers):
            for name, old in own.items():
                if id(old) in made:
                    cast(dict[str, Tensor], own)[name] = made[id(old)]
    return files.bytes_read


def _read(name: str, tensor: Tensor, device: torch.device, files: WeightFiles, names: Names) -> Tensor:
    """A tensor like `tensor` (a parameter if it is one) with this rank's part of the weights."""
    shape, offset = _place(tensor)
    part = torch.empty(shape, dtype=tensor.dtype, device=device)
    _read_part(name, tensor, part, offset, files, names)
    whole: Tensor = part
    if isinstance(tensor, DTensor):
        whole = DTensor.from_local(
            part, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
        )
    return nn.Parameter(whole, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else whole


def _place(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of this rank's part, and its offset in the full tensor."""
    if not isinstance(tensor, DTensor):
        return tuple(tensor.shape), (0,) * tensor.ndim
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(shape), tuple(offset)


def _read_part(name: str, tensor: Tensor, part: Tensor, offset: tuple[int, ...], words: Words, names: Names) -> None:
    """Read a `part` at `offset` of `tensor`, using checkpoint names."""
    if is_stack(name):
        for piece in pieces(name, tuple(tensor.shape), tuple(part.shape), offset):
            words.read_into(part[piece.at, piece.rows], names[piece.source], (piece.start, offset[2]))
    else:
        words.read_into(part, names[Source(name)], offset)


def follow(model: PreTrainedModel, store: WeightStore, version: int) -> int:
    """Load a published version into the memory of `model`, sharded or not; return the bytes read.

    Raises VersionMissing, WeightRefused.
    """
    wanted = Wanted()
    _read_again(model, wanted)
    sections = store.sections(version, wanted.words)
    _read_again(model, sections)
    return sections.bytes_read


@torch.no_grad()
def _read_again(model: PreTrainedModel, words: Words) -> None:
    state = model.state_dict(keep_vars=True)
    names = {source: name for name, source in sources_of(model, state).items()}
    for aliases in _tied(state):
        tensor = state[aliases[0]]
        part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        _read_part(aliases[0], tensor, part.detach(), _place(tensor)[1], words, names)
