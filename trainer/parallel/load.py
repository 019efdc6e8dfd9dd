"""Reading a policy on ranks: each rank reads what it will hold, and never has the rest.

    model_of   the model without memory for its weights (on the meta device)
    shard      cuts it (`shard.py`), which costs nothing yet
    fill       memory for this rank's parts, and their words out of the files
    follow     later, the words of a published version into the same memory

The library's loader reads names of older checkpoints too, quantized ones and more. Where a folder is anything but what its
class writes today, that loader reads it whole, or says what is wrong with it.
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
from trainer.parallel.errors import ParallelRefused
from trainer.parallel.publish import Source, is_stack, pieces, shape_of, sources_of
from trainer.policy.slices import WeightFiles, outline
from trainer.policy.store import load_config
from trainer.weights import WeightStore
from trainer.weights.sections import Wanted


class Words(Protocol):
    """Named tensors, of which any part can be had."""

    def read_into(self, target: Tensor, name: str, offset: tuple[int, ...]) -> None:
        """What `name` has from `offset` on, as much as `target` holds."""
        ...


Names = Mapping[Source, str]
"""Where a file has what memory has."""


def model_of(folder: Path, *, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """`policies.load_model` for ranks: `fill` has to follow once the model is cut. Raises PolicyUnreadable."""
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
    """Whether the files hold exactly what the class writes: its names, shapes, numbers that can be rounded to its own."""
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
    """Names of each tensor."""
    found: dict[int, list[str]] = {}
    for name, tensor in state.items():
        found.setdefault(id(tensor), []).append(name)
    return found.values()


def _sources(name: str, tensor: Tensor) -> list[Source]:
    """What of a file the tensor `name` is made of."""
    if not is_stack(name):
        return [Source(name)]
    shape = tuple(tensor.shape)
    return [piece.source for piece in pieces(name, shape, shape, (0, 0, 0))]


@contextmanager
def as_if_there(model: nn.Module) -> Iterator[None]:
    """For putting adapters into a model of `model_of`: peft puts them where their base is. Meanwhile each tensor is one number
    on the CPU, seen as all of them, so that adapters are drawn as those of a base that is there."""
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
    """Give what is on the meta device memory on `device`, and read it from `folder`; returns the bytes that were read.

    `model` is one of `model_of`, cut or not, with adapters or without. Raises PolicyUnreadable.
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
    """A tensor like `tensor`, a parameter if it is one, with this rank's part of the words."""
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
    """Shape of this rank's part, and where it begins in the whole."""
    if not isinstance(tensor, DTensor):
        return tuple(tensor.shape), (0,) * tensor.ndim
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(shape), tuple(offset)


def _read_part(name: str, tensor: Tensor, part: Tensor, offset: tuple[int, ...], words: Words, names: Names) -> None:
    """The words of a `part` that begins at `offset` of `tensor`, by the names that checkpoints have."""
    if is_stack(name):
        for piece in pieces(name, tuple(tensor.shape), tuple(part.shape), offset):
            words.read_into(part[piece.at, piece.rows], names[piece.source], (piece.start, offset[2]))
    else:
        words.read_into(part, names[Source(name)], offset)


def follow(model: PreTrainedModel, store: WeightStore, version: int) -> int:
    """`model`, cut or not, becomes a published version in the memory that it has; returns the bytes that were read.

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
