"""Weight store: published policy weights as deltas and anchors in a folder or a bucket, verified by digests."""

from trainer.weights.errors import (
    CorruptManifest,
    CorruptPayload,
    ShardMissing,
    StoreUnavailable,
    VersionMissing,
    WeightError,
    WeightRefused,
    WrongBase,
)
from trainer.weights.manifest import Manifest
from trainer.weights.sharded_publisher import RankPublisher
from trainer.weights.store import LoadedWeights, WeightStore
from trainer.weights.subscriber import Fetched, Mirror, Subscriber
from trainer.weights.tensors import Slice
from trainer.weights.versions import Versions, open_versions

__all__ = [
    "CorruptManifest",
    "CorruptPayload",
    "Fetched",
    "LoadedWeights",
    "Manifest",
    "Mirror",
    "RankPublisher",
    "ShardMissing",
    "Slice",
    "StoreUnavailable",
    "Subscriber",
    "VersionMissing",
    "Versions",
    "WeightError",
    "WeightRefused",
    "WeightStore",
    "WrongBase",
    "open_versions",
]
