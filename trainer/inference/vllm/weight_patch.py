"""Weight patches: the difference of two versions as a file of overwrites, and the digests of each worker's result.

The counterpart is `extension.py`, which reports the views of tensors that a worker holds and applies the patches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.inference.errors import ServerError
from trainer.weights.blocks import in_threads
from trainer.weights.patch import between
from trainer.weights.subscriber import Mirror
from trainer.weights.tensors import DTYPES, RawTensor

DENSEST = 0.25
"""Share of changed words above which a full checkpoint is smaller than their positions and values."""
Span = tuple[int, list[int], list[int], str]
"""Words of a tensor on a worker: offset, sizes and strides in the flat tensor, and the worker's dtype."""


class PatchRefused(ServerError):
    """These weights cannot be overwritten in place, for the stated reason; they are loaded in full."""


class Loaded(BaseModel):
    """A worker's report after a full load."""

    model_config = ConfigDict(extra="forbid")

    rank: int
    plan: dict[str, list[Span]] | None
    reason: str


def plans_of(answers: Sequence[object]) -> list[dict[str, list[Span]]]:
    """Plans by rank, from the workers' load reports. Raises PatchRefused with the first missing plan's reason."""
    plans: dict[int, dict[str, list[Span]]] = {}
    for answer in answers:
        if isinstance(answer, dict) and "error" in answer:
            raise PatchRefused(str(answer["error"]))
        try:
            loaded = Loaded.model_validate(answer)
        except ValidationError as error:
            raise PatchRefused(f"a worker's answer has another shape: {error.errors()[0]['msg']}") from error
        if loaded.plan is None:
            raise PatchRefused(loaded.reason)
        plans[loaded.rank] = loaded.plan
    if sorted(plans) != list(range(len(answers))) or not plans:
        raise PatchRefused(f"the workers call themselves {sorted(plans)}, which are not the ranks of {len(answers)}")
    return [plans[rank] for rank in range(len(answers))]


class Digests:
    """Expected digests of a version on the workers. Tensors without changes are not reread."""

    def __init__(self, plans: Sequence[Mapping[str, list[Span]]]) -> None:
        self._plans = plans
        self._known: dict[tuple[str, str], tuple[RawTensor, str]] = {}

    def of(self, mirror: Mirror) -> list[dict[str, list[str]]]:
        """Digests by rank, name and view. Raises PatchRefused when the workers together hold less than the version."""
        tensors = {**mirror.raw, **{alias: mirror.raw[name] for alias, name in mirror.manifest.aliases.items()}}
        wanted = {(n, json.dumps(span)): span for plan in self._plans for n, spans in plan.items() for span in spans}
        if unknown := sorted({name for name, _ in wanted} - tensors.keys()):
            raise PatchRefused(f"the server holds {unknown[0]}, which version {mirror.version} does not have")
        if not self._known:  # steps change neither names nor shapes
            self._covered(mirror, {name for name, _ in wanted})

        def one(item: tuple[tuple[str, str], Span]) -> tuple[RawTensor, str]:
            key, span = item
            raw = tensors[key[0]]
            known = self._known.get(key)
            return known if known is not None and known[0] is raw else (raw, _digest(raw, span))

        self._known = dict(zip(wanted, in_threads(one, wanted.items()), strict=True))
        return [
            {name: [self._known[name, json.dumps(span)][1] for span in spans] for name, spans in plan.items()}
            for plan in self._plans
        ]

    def _covered(self, mirror: Mirror, held: set[str]) -> None:
        """Check that the workers together hold every word of the version's policy: vLLM does not draft with its head."""
        for name, raw in mirror.policy.items():
            if not held & {name, *(alias for alias, of in mirror.manifest.aliases.items() if of == name)}:
                raise PatchRefused(f"no worker of the server holds {name}")
            seen = np.zeros(raw.words, bool)
            for plan in self._plans:
                for offset, sizes, strides, _ in plan.get(name, []):
                    torch.from_numpy(seen).as_strided(sizes, strides, offset).fill_(True)
            if name in held and not seen.all():
                raise PatchRefused(f"no worker of the server holds word {int(np.argmin(seen))} of {name}")


def _digest(raw: RawTensor, span: Span) -> str:
    offset, sizes, strides, dtype = span
    flat = torch.from_numpy(raw.data).view(DTYPES[raw.dtype])
    words = flat.as_strided(sizes, strides, offset).to(DTYPES[dtype]).contiguous()
    return hashlib.sha256(words.view(-1).view(torch.uint8).numpy().data).hexdigest()


def write(path: Path, old: Mirror, new: Mirror, *, base: str, target: str, digests: list[dict[str, list[str]]]) -> int:
    """Write a patch file atomically; return the number of changed words. Raises PatchRefused, WrongBase, OSError."""
    patch = between(old, new)
    total = sum(raw.words for raw in new.policy.values())
    if patch.changed > DENSEST * total:
        raise PatchRefused(f"{patch.changed / total:.0%} of the words change; a whole checkpoint is shorter")
    aliases = new.manifest.aliases
    tensors: dict[str, torch.Tensor] = {}
    names = []
    for number, (name, (positions, words)) in enumerate(patch.words.items()):
        names.append([name, *(alias for alias, of in aliases.items() if of == name)])
        narrow = new.raw[name].words < 1 << 31
        tensors[f"{number}/positions"] = positions.to(torch.int32) if narrow else positions
        tensors[f"{number}/words"] = words.view(DTYPES[new.raw[name].dtype])
    said = json.dumps({"base": base, "target": target, "tensors": names, "digests": digests})
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    safetensors.torch.save_file(tensors, partial, metadata={"patch": said})
    partial.replace(path)
    return patch.changed
