"""Errors of the trainer that cross its packages. Each message states what was found and what the operator can do.

Stage errors end a training stage. Weight errors name the version, and refuse published bytes that cannot be trusted.
"""

from __future__ import annotations


class StageError(Exception):
    """A stage cannot go on."""


class BatchTimeout(StageError):
    """No full batch was accepted before the deadline (rollout workers or inference are down, or too slow)."""


class ParallelRefused(StageError):
    """This policy or configuration cannot be trained this way on this machine."""


class RanksLost(StageError):
    """The trainer's processes ended without a result."""


class WeightError(Exception):
    """The weight store cannot do what was asked."""


class VersionMissing(WeightError):
    """The version is not in the store: never published, removed by garbage collection, or retracted."""


class WeightRefused(WeightError):
    """Published bytes that do not prove what their manifest says. Nothing of them was applied."""


class CorruptManifest(WeightRefused):
    """The manifest does not parse, or contradicts itself or its folder."""


class CorruptPayload(WeightRefused):
    """The payload is truncated, altered or reordered."""


class WrongBase(WeightRefused):
    """A delta against other weights than the ones at hand."""


class StoreUnavailable(WeightError):
    """The store is full, too slow, out of reach or not allowed. What was published before is as it was."""


class BlobMissing(WeightError):
    """No such object in the store."""


class BlobChanged(WeightError):
    """The object is not what a write was conditional on."""


class StoreBusy(WeightError):
    """Another process has the right to write."""


class LeaseLost(WeightError):
    """The right to write ended before the work did. What was not visible before it did not become visible."""


class ShardMissing(WeightError):
    """A rank did not publish its part in time, so the version was not published."""
