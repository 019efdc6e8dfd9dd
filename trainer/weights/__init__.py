"""Weight store: published policy weights as deltas and anchors in a folder or a bucket, verified by digests.

What handles tensors is imported on first use, because rollout workers ask for versions and must not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainer.errors import (
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
from trainer.weights.versions import Versions, open_versions

if TYPE_CHECKING:
    from trainer.weights.sharded_publisher import RankPublisher
    from trainer.weights.store import LoadedWeights, WeightStore
    from trainer.weights.subscriber import Fetched, Mirror, Subscriber
    from trainer.weights.tensors import Slice

_WITH_TORCH = {
    "Fetched": "subscriber",
    "LoadedWeights": "store",
    "Mirror": "subscriber",
    "RankPublisher": "sharded_publisher",
    "Slice": "tensors",
    "Subscriber": "subscriber",
    "WeightStore": "store",
}

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


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)
