"""The policy that the KL term pulls towards: the starting policy, or a lagged one that follows in jumps.

A lagged reference always comes out of the weight store, also in the process that published it: a resumed run then
has the same reference, bit for bit.
"""

from __future__ import annotations

from transformers import PreTrainedModel

from trainer.config import ObjectiveConfig
from trainer.policy.names import load_checkpoint_state
from trainer.weights import WeightStore

PIN = "reference"
PIN_SAVED = "reference-saved"
"""The reference at the newest checkpoint, which a resume needs."""


class Reference:
    """A frozen model, kept at the version that the objective asks for."""

    def __init__(self, model: PreTrainedModel, objective: ObjectiveConfig, store: WeightStore) -> None:
        self.model = model.requires_grad_(False)
        self.objective = objective
        self.store = store
        self.version = 0

    def follow(self, version: int) -> None:
        """Before the policy of `version` is trained: versions 0, n, 2n, … serve the n steps after them.

        Raises VersionMissing, WeightRefused.
        """
        wanted = self.wanted(version)
        if wanted == self.version:
            return
        self._become(wanted)
        self._pin(PIN, wanted)
        self.version = wanted

    def wanted(self, version: int) -> int:
        """The version that it has while the policy of `version` is trained."""
        if self.objective.reference == "start":
            return self.version
        return version - version % self.objective.reference_steps

    def saved(self) -> None:
        """A checkpoint was written: keep what its resume will load."""
        if self.version:
            self._pin(PIN_SAVED, self.version)

    def _become(self, version: int) -> None:
        load_checkpoint_state(self.model, self.store.load(version).state)

    def _pin(self, name: str, version: int) -> None:
        self.store.pin(name, version)
