"""Reference policy of the KL term: the starting policy, or a lagged version that is updated at intervals.

A lagged reference is always loaded from the weight store, even by the process that published it. A resumed run then has
the same reference, bit for bit.
"""

from __future__ import annotations

from transformers import PreTrainedModel

from trainer.config import ObjectiveConfig
from trainer.policy.names import load_checkpoint_state
from trainer.weights import WeightStore

PIN = "reference"
PIN_SAVED = "reference-saved"
"""Store pin on the reference at the newest checkpoint, which a resume needs."""


class Reference:
    """A frozen model at the version that the objective selects."""

    def __init__(self, model: PreTrainedModel, objective: ObjectiveConfig, store: WeightStore) -> None:
        self.model = model.requires_grad_(False)
        self.objective = objective
        self.store = store
        self.version = 0

    def follow(self, version: int) -> None:
        """Load the reference before the policy of `version` is trained: versions 0, n, 2n, … serve the n steps after
        them.

        Raises VersionMissing, WeightRefused.
        """
        wanted = self.wanted(version)
        if wanted == self.version:
            return
        self._become(wanted)
        self._pin(PIN, wanted)
        self.version = wanted

    def wanted(self, version: int) -> int:
        """Version of the reference while the policy of `version` is trained."""
        if self.objective.reference == "start":
            return self.version
        return version - version % self.objective.reference_steps

    def saved(self) -> None:
        """After a checkpoint, pin the version that its resume will load."""
        if self.version:
            self._pin(PIN_SAVED, self.version)

    def _become(self, version: int) -> None:
        load_checkpoint_state(self.model, self.store.load(version).state)

    def _pin(self, name: str, version: int) -> None:
        self.store.pin(name, version)
