"""Workers that hold weights as vLLM's do: fused projections, stacked experts, a share of each tensor by rank, and, like its CPU
backend, kernels with packed copies of what they were given. The extension under test is the product's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from trainer.inference.vllm.extension import WeightPatches

Slices = tuple[slice | int, ...]
FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
ORDER = {"q_proj": 0, "k_proj": 1, "v_proj": 2, "gate_proj": 0, "up_proj": 1}


@dataclass(frozen=True)
class Share:
    """What one rank holds of a checkpoint's tensor, and where."""

    module: str
    param: str
    target: Slices
    source: Slices


class Packing:
    """As the CPU backend's methods: the kernel keeps a copy, and the parameter is emptied unless it is read elsewhere."""

    def __init__(self, keep: bool) -> None:
        self.keep = keep

    def process_weights_after_loading(self, module: Any) -> None:
        module.cpu_linear = {name: p.detach().clone() for name, p in module._parameters.items()}
        if not self.keep:
            for name in list(module._parameters):
                module.register_parameter(name, torch.nn.Parameter(torch.empty(0), requires_grad=False))


class Worker(WeightPatches):
    def __init__(self, shapes: dict[str, tuple[int, ...]], *, rank: int, world: int, packs: bool = False) -> None:
        self.rank, self.world, self.packs = rank, world, packs
        self.shapes = shapes
        self.model: Any = torch.nn.Module()
        self.sizes: dict[tuple[str, str], tuple[int, ...]] = {}
        for name in shapes:
            share = self.share(name)
            key, shape = (share.module, share.param), self._extent(name, share)
            grown = zip(self.sizes.get(key, shape), shape, strict=True)
            self.sizes[key] = tuple(max(a, b) for a, b in grown)
        for (path, param), size in self.sizes.items():
            self._module(path).register_parameter(param, torch.nn.Parameter(torch.zeros(size), requires_grad=False))

    def get_model(self) -> Any:
        return self.model

    def share(self, name: str) -> Share:
        """vLLM's ways to cut and fuse, by name."""
        shape, path = self.shapes[name], name.rpartition(".")[0]
        parent, _, leaf = path.rpartition(".")
        full = tuple(slice(0, side) for side in shape)
        if found := re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", name):
            width = shape[1 if found[3] == "down_proj" else 0] // self.world
            part = slice(self.rank * width, (self.rank + 1) * width)
            expert = int(found[2])
            if found[3] == "down_proj":
                return Share(found[1], "w2_weight", (expert, full[0], slice(0, width)), (full[0], part))
            at = ORDER[found[3]] * width
            return Share(found[1], "w13_weight", (expert, slice(at, at + width), full[1]), (part, full[1]))
        if leaf in FUSED:
            rows = shape[0] // self.world
            before = [
                f"{parent}.{other}.weight"
                for other, at in ORDER.items()
                if FUSED[other] == FUSED[leaf] and at < ORDER[leaf]
            ]
            at = sum(self.shapes[other][0] // self.world for other in before)
            source = slice(self.rank * rows, (self.rank + 1) * rows)
            return Share(f"{parent}.{FUSED[leaf]}", "weight", (slice(at, at + rows), *full[1:]), (source, *full[1:]))
        if leaf in ("o_proj", "down_proj"):
            columns = shape[1] // self.world
            source = slice(self.rank * columns, (self.rank + 1) * columns)
            return Share(path, "weight", (full[0], slice(0, columns)), (full[0], source))
        if leaf in ("embed_tokens", "lm_head"):
            rows = -(-shape[0] // self.world)  # the last rank's share is padded
            source = slice(min(self.rank * rows, shape[0]), min((self.rank + 1) * rows, shape[0]))
            return Share(path, "weight", (slice(0, source.stop - source.start), full[1]), (source, full[1]))
        return Share(path, name.rpartition(".")[2], full, full)

    def _extent(self, name: str, share: Share) -> tuple[int, ...]:
        sizes = [at + 1 if isinstance(at, int) else at.stop for at in share.target]
        if share.module.endswith(("embed_tokens", "lm_head")):
            sizes[0] = -(-self.shapes[name][0] // self.world)
        return tuple(sizes)

    def _module(self, path: str) -> Any:
        at = self.model
        for part in path.split("."):
            if part not in at._modules:
                at.add_module(part, torch.nn.Module())
            at = at._modules[part]
        return at

    def reload_weights(self, weights_iterator: Iterable[tuple[str, torch.Tensor]]) -> None:
        """As vLLM's: parameters are there anew as they are loaded, filled, and then laid out for kernels."""
        for (path, param), size in self.sizes.items():
            there = self._module(path)._parameters[param]
            if there.shape != size:
                self._module(path).register_parameter(param, torch.nn.Parameter(torch.zeros(size), requires_grad=False))
        with torch.no_grad():
            for name, tensor in weights_iterator:
                share = self.share(name)
                self.model.get_submodule(share.module)._parameters[share.param][share.target].copy_(
                    tensor[share.source]
                )
        for path in {path for path, _ in self.sizes}:
            module = self._module(path)
            if self.packs and not path.endswith("norm"):
                module.quant_method = Packing(keep=path.endswith("embed_tokens"))
                module.quant_method.process_weights_after_loading(module)

    def computes_with(self, share: Share) -> torch.Tensor:
        """The words that a kernel would read."""
        module = self.model.get_submodule(share.module)
        packed = getattr(module, "cpu_linear", None)
        return (packed or module._parameters)[share.param].detach()[share.target]


def gathered(workers: list[Worker]) -> Iterator[tuple[str, torch.Tensor]]:
    """A checkpoint again, of what the workers compute with."""
    for name, shape in workers[0].shapes.items():
        whole = torch.full(shape, float("nan"))
        for worker in workers:
            share = worker.share(name)
            whole[share.source] = worker.computes_with(share)
        assert not whole.isnan().any(), name
        yield name, whole
