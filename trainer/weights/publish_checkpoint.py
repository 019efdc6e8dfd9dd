"""A policy's folder as a version of a weight store: what a run does at each step, for weights that no run publishes.

A promoted policy for a production cluster that follows a bucket, a checkpoint made by hand, a store to try an engine with.
"""

from __future__ import annotations

from pathlib import Path

from trainer.errors import WeightError
from trainer.policy import load_model, tokenizer_of
from trainer.policy.names import checkpoint_state
from trainer.weights.manifest import Manifest
from trainer.weights.probe import measure_model
from trainer.weights.store import WeightStore


class VersionTaken(WeightError):
    """Publishing it would retract versions that engines may follow."""


def publish_checkpoint(folder: Path, where: str, *, version: int | None = None, dtype: str = "bfloat16") -> Manifest:
    """Publishes the weights in `folder`, with their probe, as an anchor. `version`: by default one more than the newest.

    Raises PolicyUnreadable, VersionTaken, WeightError."""
    store = WeightStore(where, dtype=dtype)
    newest = store.latest()
    number = (0 if newest is None else newest + 1) if version is None else version
    if newest is not None and number <= newest:
        raise VersionTaken(
            f"version {number} of {store.root}: its newest is {newest}, and later ones would be retracted; "
            f"give {newest + 1} or more, or leave the number out"
        )
    model = load_model(folder)
    state = checkpoint_state(model, model.state_dict())
    probe = measure_model(model, tokenizer=tokenizer_of(folder), dtype=store.format)
    return store.publish(number, state, anchor=True, probe=probe)
