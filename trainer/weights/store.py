"""WeightStore: what trainer, evals and tools use of `trainer.weights`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from trainer.weights import collection, subscriber
from trainer.weights.codec import Mode
from trainer.weights.manifest import Manifest
from trainer.weights.probe import Probe
from trainer.weights.publisher import Publisher
from trainer.weights.sections import Sections, load_sections
from trainer.weights.tensors import Frozen
from trainer.weights.versions import WAIT_SECONDS, open_versions


@dataclass(frozen=True)
class LoadedWeights:
    """Tensors by canonical Hugging Face name, in the published dtype; tied names share memory."""

    state: dict[str, torch.Tensor]
    version: int
    digest: str


class WeightStore:
    """Published versions in a folder or at `s3://bucket/prefix`. One process publishes; any number read.

    `dtype` is what floating tensors are published as; the trainer keeps its own fp32 master. `mode` is the codec's.
    `wait`: seconds that publishing and collecting wait for another process that does.
    """

    def __init__(
        self,
        where: str | Path,
        *,
        dtype: str = "bfloat16",
        anchor_every: int = 20,
        mode: Mode = "small",
        wait: float = WAIT_SECONDS,
    ) -> None:
        self.versions = open_versions(where, wait=wait)
        self._publisher = Publisher(self.versions, dtype=dtype, anchor_every=anchor_every, mode=mode)

    @property
    def root(self) -> str:
        """The folder, or the address of the bucket."""
        return self.versions.where

    @property
    def format(self) -> Literal["float32", "bfloat16"]:
        """Number format of the published floating-point weights."""
        return "float32" if self._publisher.dtype == "float32" else "bfloat16"

    def publish(
        self, version: int, state: Mapping[str, torch.Tensor], *, anchor: bool = False, probe: Probe | None = None
    ) -> Manifest:
        """Publishes `state` as `version`; see `publisher` for what happens when it is there already."""
        return self._publisher.publish(version, state, anchor=anchor, probe=probe)

    def freeze(self, state: Mapping[str, torch.Tensor]) -> Frozen:
        """A copy of `state` in the published dtype, for `write`."""
        return self._publisher.freeze(state)

    def write(self, version: int, frozen: Frozen, *, anchor: bool = False, probe: Probe | None = None) -> Manifest:
        """As `publish`, of what was frozen before; beside training, one version at a time."""
        return self._publisher.write(version, frozen, anchor=anchor, probe=probe)

    def latest(self) -> int | None:
        """Newest published version."""
        versions = self.versions.all()
        return versions[-1] if versions else None

    def manifest(self, version: int) -> Manifest:
        return self.versions.manifest(version)

    def load(self, version: int | None = None) -> LoadedWeights:
        """Proven weights of `version` (None: newest). Raises VersionMissing or WeightRefused."""
        mirror = subscriber.load(self.versions, version)
        return LoadedWeights(mirror.state(), mirror.version, mirror.digest)

    def sections(self, version: int, wanted: Mapping[str, tuple[int, int]]) -> Sections:
        """Proven words of `version` alone, by tensor name: first, and behind the last. Raises VersionMissing, WeightRefused."""
        return load_sections(self.versions, version, wanted)

    def pin(self, name: str, version: int) -> None:
        """Keeps `version` and its chain from garbage collection until `unpin(name)`."""
        self.versions.pin(name, version)

    def unpin(self, name: str) -> None:
        self.versions.unpin(name)

    def collect(self, *, keep: int) -> list[int]:
        """Removes versions that neither the newest `keep`, nor a pin, nor their chains need."""
        return collection.collect(self.versions, keep=keep)
