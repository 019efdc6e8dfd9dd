"""Published policy weights: deltas and anchors in a folder, proven by digests."""

from trainer.weights.errors import (
    CorruptManifest,
    CorruptPayload,
    VersionMissing,
    WeightError,
    WeightRefused,
    WrongBase,
)
from trainer.weights.folder import Folder
from trainer.weights.manifest import Manifest
from trainer.weights.store import LoadedWeights, WeightStore
from trainer.weights.subscriber import Fetched, Mirror, Subscriber

__all__ = [
    "CorruptManifest",
    "CorruptPayload",
    "Fetched",
    "Folder",
    "LoadedWeights",
    "Manifest",
    "Mirror",
    "Subscriber",
    "VersionMissing",
    "WeightError",
    "WeightRefused",
    "WeightStore",
    "WrongBase",
]
