"""vLLM worker extension: overwrites changed words of live weights in place, where a full reload would take the pause.

Started with `--worker-extension-cls trainer.inference.vllm.extension.WeightPatches`, called by `/collective_rpc`. It
needs only torch and safetensors, so the file can be given to a vLLM that lacks this package (docs/design/inference.md).

The location of a checkpoint's word in a worker (fused projections, stacked experts, its shard of a tensor) is observed,
not guessed: the extension watches one full load, in which vLLM's own loaders show where each view of each tensor is
copied to.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch.utils._python_dispatch import TorchDispatchMode

log = logging.getLogger(__name__)
Key = tuple[str, str]
"""Key of a parameter: its module's path, and its name there."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
DERIVED = ("W_UK_T", "W_UV", "W_K", "W_V")
"""Attributes of attention layers that hold copies derived from other weights."""
DERIVED_FROM = "kv_b_proj"
"""Layer that latent attention (MLA) derives its copies from, as an attribute of the attention layer."""


class LayoutUnknown(Exception):
    """The layout of checkpoint words in this model is unknown, so it takes full checkpoints only."""


@dataclass(frozen=True)
class View:
    """Part of a flat tensor, described by torch strides."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> View:
        return cls(int(tensor.storage_offset()), tuple(tensor.size()), tuple(tensor.stride()))

    def in_(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.as_strided(self.sizes, self.strides, tensor.storage_offset() + self.offset)


@dataclass(frozen=True)
class Place:
    """Destination of a view of a checkpoint's tensor."""

    source: View
    target: View
    key: Key


def carry(positions: torch.Tensor, place: Place) -> tuple[torch.Tensor, torch.Tensor]:
    """Map flat positions in a checkpoint's tensor to a mask of those in the place, and their positions in the
    parameter."""
    rest = positions.long() - place.source.offset
    inside = rest >= 0
    index = torch.full_like(rest, place.target.offset)
    axes = sorted(zip(place.source.strides, place.source.sizes, place.target.strides, strict=True), reverse=True)
    for stride, size, step in axes:
        if size == 1:
            continue
        at = rest.div(stride, rounding_mode="floor")
        rest = rest - at * stride
        inside &= at < size
        index += at * step
    inside &= rest == 0
    return inside, index[inside]


def digest(tensor: torch.Tensor) -> str:
    """sha256 of the tensor's words in row-major order."""
    flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().data).hexdigest()


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    words = INTEGERS[a.element_size()]
    return torch.equal(a.reshape(-1).view(words), b.to(a.device).reshape(-1).view(words))


def checkpoint(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                tensor = file.get_tensor(name)
                # A storage of its own: it is what the tensor is known by while it is loaded.
                alone = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
                yield (
                    name,
                    tensor if alone and tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format),
                )


class Watch(TorchDispatchMode):
    """Records a load: which view of which tensor is copied to which view of which parameter."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.places: dict[str, list[Place]] = {}
        self.made_otherwise: set[Key] = set()
        """Parameters that received data other than a view of a checkpoint's tensor."""
        self.parameters: dict[Key, torch.Tensor] = {}
        """Parameters as loaders see them: often on the meta device, before their layout is changed for kernels."""
        self.sources: dict[Key, set[str]] = {}
        """Parameters → tensors of the checkpoint that were read when they were written."""
        self.left_out: set[str] = set()
        """Modules that vLLM's reload passes over: it sees only loaders that are called as `weight_loader` (not gpt-oss)."""
        self._keys: dict[int, Key] = {}
        self._names: dict[int, str] = {}
        self._copies: dict[int, tuple[str, View, torch.Tensor]] = {}
        """Contiguous copies of a view of a checkpoint's tensor, by storage."""
        self._current = ""

    def tensors(self, folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors for the model to load. Parameters are looked up when the load begins, because only then are they what
        loaders see.
        """
        for path, module in self.model.named_modules():
            for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
                if tensor is not None:
                    self.parameters[path, name] = tensor
                    self._keys.setdefault(tensor.untyped_storage()._cdata, (path, name))
        kept = []  # a freed storage's address would be another tensor's
        for name, tensor in checkpoint(folder):
            kept.append(tensor)
            self._names[tensor.untyped_storage()._cdata] = self._current = name
            yield name, tensor
        self.left_out = {path for path, _ in self.sources if _is_passed_over(self.model.get_submodule(path))}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.copy_.default:
            self._saw(args[0], args[1])
        made = func(*args, **(kwargs or {}))
        name = self._names.get(args[0].untyped_storage()._cdata) if func is torch.ops.aten.clone.default else None
        if name is not None and made.is_contiguous():
            self._copies[made.untyped_storage()._cdata] = (name, View.of(args[0]), made)
        return made

    def _saw(self, target: torch.Tensor, source: torch.Tensor) -> None:
        key = self._keys.get(target.untyped_storage()._cdata)
        if key is None:
            return
        if self._keys.get(source.untyped_storage()._cdata) == key:
            return  # vLLM puts back what it took away while it loads
        self.sources.setdefault(key, set()).add(self._current)
        name, view = self._names.get(source.untyped_storage()._cdata), View.of(source)
        if (copied := self._copies.get(source.untyped_storage()._cdata)) and View.of(copied[2]) == view:
            name, view, _ = copied
        if name is None or target.size() != source.size() or 0 in source.stride():
            self.made_otherwise.add(key)
            return
        place = Place(view, View.of(target), key)
        if place not in self.places.setdefault(name, []):
            self.places[name].append(place)


@dataclass
class Home:
    """A parameter that patches write to."""

    tensor: torch.Tensor
    packed: bool
    """Its kernel has a packed copy (vLLM's CPU backend): `tensor` is kept beside it, and the kernel packs it again."""

    def flat(self) -> torch.Tensor:
        span = 1 + sum((size - 1) * step for size, step in zip(self.tensor.size(), self.tensor.stride(), strict=True))
        return self.tensor.as_strided((span,), (1,), self.tensor.storage_offset())


@dataclass
class Staged:
    path: str
    base: str
    target: str
    writes: list[tuple[Key, torch.Tensor, torch.Tensor]]
    digests: dict[str, list[str]]


@dataclass
class Layout:
    """Location and digests of a model's weights."""

    model: torch.nn.Module
    places: dict[str, list[Place]]
    homes: dict[Key, Home]
    label: str
    derived: list[torch.nn.Module] = field(default_factory=list)
    """Layers of latent attention, which keep copies made of another layer's weight."""
    staged: Staged | None = field(default=None)

    @classmethod
    def learn(cls, model: torch.nn.Module, watch: Watch, folder: Path, label: str) -> Layout:
        """Build the layout from a recorded, finished load. Raises LayoutUnknown."""
        made = cls(model, watch.places, {}, label, derived=_derived(model))
        if watch.made_otherwise:
            raise LayoutUnknown(
                f"{'.'.join(min(watch.made_otherwise))} is not loaded by copies of a checkpoint's words alone"
            )
        for key in {place.key for places in watch.places.values() for place in places}:
            made.homes[key] = made._home(key, watch.parameters[key])
        for key in sorted(made._differing_from(folder)):
            made.homes[key] = made._beside(key, watch.parameters[key])
        made._fill(folder)
        return made

    def _home(self, key: Key, loaded: torch.Tensor) -> Home:
        live = self._live(key)
        return Home(live, packed=False) if _as_loaded(live, loaded) else self._beside(key, loaded)

    def _beside(self, key: Key, loaded: torch.Tensor) -> Home:
        """Words in the loaders' order, for a kernel with another layout; the kernel's copy can be rebuilt from them."""
        module = self.model.get_submodule(key[0])
        if self._live(key).device.type != "cpu" or not hasattr(module, "quant_method"):
            raise LayoutUnknown(f"{'.'.join(key)} is laid out anew for its kernel")
        return Home(torch.zeros_like(loaded, device="cpu"), packed=True)

    def _each(self, folder: Path, *, packed: bool) -> Iterator[tuple[Place, torch.Tensor, torch.Tensor]]:
        """Places with a checkpoint's words and the live words."""
        for name, tensor in checkpoint(folder):
            for place in self.places.get(name, []):
                home = self.homes[place.key]
                if home.packed == packed:
                    yield place, place.source.in_(tensor), place.target.in_(home.tensor)

    def _differing_from(self, folder: Path) -> set[Key]:
        """Live parameters that differ from the words that loaders put there."""
        return {
            place.key
            for place, words, there in self._each(folder, packed=False)
            if not same_bits(there, words.to(there.device, there.dtype))
        }

    def _fill(self, folder: Path) -> None:
        for _, words, there in self._each(folder, packed=True):
            there.copy_(words)

    def _live(self, key: Key) -> torch.Tensor:
        module = self.model.get_submodule(key[0])
        found = module._parameters.get(key[1], module._buffers.get(key[1]))
        if found is None:
            raise LayoutUnknown(f"{'.'.join(key)} is gone after the load")
        return found

    def plan(self) -> dict[str, Any]:
        """Views of tensors that this worker holds, with dtypes, for the patch builder."""
        return {
            name: [
                [p.source.offset, p.source.sizes, p.source.strides, str(self.homes[p.key].tensor.dtype)[6:]]
                for p in places
            ]
            for name, places in self.places.items()
        }

    def stage(self, path: str, rank: int) -> Staged:
        """Read a patch and stage its words beside the weights, on their device. Changes no weight."""
        writes = []
        with safe_open(path, framework="pt") as file:
            said = json.loads(file.metadata()["patch"])
            for number, names in enumerate(said["tensors"]):
                positions, words = file.get_tensor(f"{number}/positions"), file.get_tensor(f"{number}/words")
                for place in [place for name in names for place in self.places.get(name, [])]:
                    inside, index = carry(positions, place)
                    if len(index):
                        at = self.homes[place.key].tensor
                        writes.append((place.key, index.to(at.device), words[inside].to(at.device, at.dtype)))
        self.staged = Staged(path, said["base"], said["target"], writes, said["digests"][rank])
        return self.staged

    def apply(self, staged: Staged) -> list[str]:
        """Overwrite the live words; idempotent. Return the names of tensors with wrong contents afterwards."""
        with torch.no_grad():
            for key, index, words in staged.writes:
                self.homes[key].flat()[index] = words
            touched = {key for key, _, _ in staged.writes}
            self._pack(touched)
            self._derive(touched)
        wrong = self._differing(staged.digests)
        if not wrong:
            self.label, self.staged = staged.target, None
        return wrong

    def _differing(self, digests: dict[str, list[str]]) -> list[str]:
        def one(name: str) -> str:
            found = [digest(place.target.in_(self.homes[place.key].tensor)) for place in self.places[name]]
            return "" if found == digests.get(name) else name

        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
            return sorted(filter(None, pool.map(one, self.places)))

    def _pack(self, touched: set[Key]) -> None:
        """Make kernels rebuild their packed copies, including the other layer of a tied weight."""
        storages = {self.homes[key].tensor.untyped_storage()._cdata for key in touched}
        for path, module in self.model.named_modules():
            mine = [name for name in module._parameters if (path, name) in touched]
            shared = any(p is not None and p.untyped_storage()._cdata in storages for p in module._parameters.values())
            packed = any(home.packed for name in mine if (home := self.homes[path, name]))
            if packed or (shared and hasattr(module, "cpu_linear")):
                self._pack_one(path, module)

    def _derive(self, touched: set[Key]) -> None:
        """Have attention layers make their copies again; vLLM copies into the tensors that CUDA graphs hold."""
        changed = {id(self.model.get_submodule(path)) for path, _ in touched}
        for layer in self.derived:
            if id(getattr(layer, DERIVED_FROM)) in changed:
                dtype = next(kept.dtype for name in DERIVED if (kept := getattr(layer, name, None)) is not None)
                layer.process_weights_after_loading(dtype)  # type: ignore[operator]

    def _pack_one(self, path: str, module: torch.nn.Module) -> None:
        for name in list(module._parameters):
            home = self.homes.get((path, name))
            if home is not None and home.packed:
                _register(module, name, home.tensor.clone())
        _process(module)


def _as_loaded(live: torch.Tensor, loaded: torch.Tensor) -> bool:
    return (live.size(), live.dtype, live.stride()) == (loaded.size(), loaded.dtype, loaded.stride())


def _register(module: torch.nn.Module, name: str, words: torch.Tensor) -> None:
    parameter = torch.nn.Parameter(words, requires_grad=False)
    parameter.__dict__.update(getattr(module._parameters[name], "__dict__", {}))
    module.register_parameter(name, parameter)


def _process(module: torch.nn.Module) -> None:
    """Have vLLM lay a module's weights out for its kernel."""
    method: Any = module.quant_method
    if getattr(method, "moe_kernel", None) is not None and next(module.parameters()).device.type == "cpu":
        method.moe_kernel = None  # with it, vLLM 0.32 skips the packing and computes with the words as they lie
    if hasattr(module, "_already_called_process_weights_after_loading"):
        del module._already_called_process_weights_after_loading
    method.process_weights_after_loading(module)


def _is_passed_over(module: torch.nn.Module) -> bool:
    try:
        from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
    except ImportError:  # another version, or no vLLM: its reload is taken at its word, and the probe judges
        return False
    info = get_layerwise_info(module)
    return bool(info.can_load()) and info.load_numel <= 0


def _load_left_out(model: Any, watch: Watch, folder: Path) -> None:
    """Load what vLLM's reload passed over, by the model's own loader into the live tensors. Raises LayoutUnknown."""
    for (path, name), loaded in watch.parameters.items():
        module = model.get_submodule(path)
        live = module._parameters.get(name)
        if path not in watch.left_out or live is None or _as_loaded(live, loaded):
            continue
        if live.device.type != "cpu" or not hasattr(module, "quant_method"):
            raise LayoutUnknown(f"vLLM's reload leaves {path}.{name} as it was; start the server with the new weights")
        _register(module, name, torch.empty_like(loaded, device="cpu"))
    wanted = {source for key, sources in watch.sources.items() if key[0] in watch.left_out for source in sources}
    with torch.no_grad():
        model.load_weights((name, tensor) for name, tensor in checkpoint(folder) if name in wanted)
    for module in map(model.get_submodule, sorted(watch.left_out)):
        if getattr(module, "quant_method", None) is not None:
            _process(module)


def _derived(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Layers that keep copies of another layer's weight, and can make them again. Raises LayoutUnknown for others."""
    found = []
    for path, module in model.named_modules():
        names = [name for name in DERIVED if getattr(module, name, None) is not None]
        if not names:
            continue
        source = getattr(getattr(module, DERIVED_FROM, None), "weight", None)
        if source is None or not source.is_floating_point() or source.element_size() < 2 or not source.numel():
            raise LayoutUnknown(f"{path} keeps {names[0]}, which cannot be made of its weights again")
        found.append(module)
    return found


Answer = dict[str, Any]


def answered(call: Callable[..., Answer]) -> Callable[..., Answer]:
    """Turn every failure into an answer: an exception could end the engine with all of its requests."""

    @wraps(call)
    def wrapped(*args: Any, **kwargs: Any) -> Answer:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            log.exception("%s", call.__name__)
            return {"error": f"{type(error).__name__}: {error}"}

    return wrapped


class WeightPatches:
    """Mixed into vLLM's Worker. Folders and files must be visible to it under the same path."""

    opencomposer_layout: Layout | None = None

    @answered
    def opencomposer_load(self, folder: str, label: str) -> Answer:
        """Load a full checkpoint with vLLM's own reload. `plan` lists what patches may change, `reason` why none may."""
        worker: Any = self
        worker.opencomposer_layout = None
        model = worker.get_model()
        for module in model.modules():
            method: Any = getattr(module, "quant_method", None)
            # vLLM 0.32's CPU backend packs experts only while this is None, and else computes garbage after a reload.
            if getattr(method, "moe_kernel", None) is not None and next(module.parameters()).device.type == "cpu":
                method.moe_kernel = None
        watch = Watch(model)
        with watch:
            worker.reload_weights(weights_iterator=watch.tensors(Path(folder)))
        if watch.left_out:
            _load_left_out(model, watch, Path(folder))
        try:
            layout = Layout.learn(model, watch, Path(folder), label)
        except LayoutUnknown as error:
            return {"rank": worker.rank, "plan": None, "reason": str(error)}
        worker.opencomposer_layout = layout
        return {"rank": worker.rank, "plan": layout.plan(), "reason": ""}

    @answered
    def opencomposer_stage(self, path: str) -> Answer:
        """Stage a patch before the pause."""
        worker: Any = self
        staged = self._opencomposer_known().stage(path, worker.rank)
        return {"base": staged.base, "words": sum(len(index) for _, index, _ in staged.writes)}

    @answered
    def opencomposer_apply(self, path: str) -> Answer:
        """Apply the staged patch during the pause. `wrong` names tensors that then differ from the published ones: load
        a full checkpoint.
        """
        worker: Any = self
        layout = self._opencomposer_known()
        staged = layout.staged
        if staged is None or staged.path != path:
            staged = layout.stage(path, worker.rank)
        if layout.label not in (staged.base, staged.target):
            return {"error": f"the worker holds {layout.label}, and the patch is on {staged.base}"}
        return {"wrong": layout.apply(staged)}

    def _opencomposer_known(self) -> Layout:
        if self.opencomposer_layout is None:
            raise LayoutUnknown("no checkpoint was loaded by opencomposer_load")
        return self.opencomposer_layout
