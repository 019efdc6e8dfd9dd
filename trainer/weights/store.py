"""WeightStore: what trainer, evals and tools use of `trainer.weights`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.weights import collection, subscriber
from trainer.weights.folder import Folder
from trainer.weights.manifest import Manifest
from trainer.weights.publisher import Publisher


@dataclass(frozen=True)
class LoadedWeights:
    """Tensors by canonical Hugging Face name, in the published dtype; tied names share memory."""

    state: dict[str, torch.Tensor]
    version: int
    digest: str


class WeightStore:
    """A folder of published versions. One process publishes; any number read.

    `dtype` is what floating tensors are published as; the trainer keeps its own fp32 master.
    """

    def __init__(self, root: Path, *, dtype: str = "bfloat16", anchor_every: int = 20) -> None:
        self.folder = Folder(Path(root))
        self._publisher = Publisher(self.folder, dtype=dtype, anchor_every=anchor_every)

    @property
    def root(self) -> Path:
        return self.folder.root

    def publish(self, version: int, state: Mapping[str, torch.Tensor], *, anchor: bool = False) -> Manifest:
        """Publishes `state` as `version`; see `publisher` for what happens when it is there already."""
        return self._publisher.publish(version, state, anchor=anchor)

    def latest(self) -> int | None:
        """Newest published version."""
        versions = self.folder.versions()
        return versions[-1] if versions else None

    def manifest(self, version: int) -> Manifest:
        return self.folder.manifest(version)

    def load(self, version: int | None = None) -> LoadedWeights:
        """Proven weights of `version` (None: newest). Raises VersionMissing or WeightRefused."""
        mirror = subscriber.load(self.folder, version)
        return LoadedWeights(mirror.state(), mirror.version, mirror.digest)

    def pin(self, name: str, version: int) -> None:
        """Keeps `version` and its chain from garbage collection until `unpin(name)`."""
        self.folder.pin(name, version)

    def unpin(self, name: str) -> None:
        self.folder.unpin(name)

    def collect(self, *, keep: int) -> list[int]:
        """Removes versions that neither the newest `keep`, nor a pin, nor their chains need."""
        return collection.collect(self.folder, keep=keep)
