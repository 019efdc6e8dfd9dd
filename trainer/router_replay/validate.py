"""Validation of recorded token ids and experts against the policy's configuration.

Shape suffixes: R rows, L MoE layers, K experts a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from trainer.router_replay.families import Router, RouterUnknown, routers
from trainer.router_replay.payload import UNKNOWN, Experts, ReplayRefused
from trainer.stamps import CONFIG, Stamp, stamp


@dataclass(frozen=True, slots=True)
class PolicyShape:
    vocabulary: int
    """Rows of the embedding; every token id is smaller."""
    experts: tuple[int, ...]
    """Number of experts in each MoE layer, in layer order; empty for a dense policy."""
    top_k: int

    @classmethod
    def of(cls, vocabulary: int, found: Sequence[Router]) -> PolicyShape:
        return cls(vocabulary, tuple(router.experts for router in found), found[0].top_k if found else 0)

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raises ReplayRefused naming the first id outside the vocabulary."""
        wrong = next((at for at, token in enumerate(tokens) if not 0 <= token < self.vocabulary), None)
        if wrong is not None:
            raise ReplayRefused(
                f"token {tokens[wrong]} at position {wrong} does not exist: the policy has {self.vocabulary}; "
                "the sampler serves another policy"
            )

    def check_experts(self, experts_RLK: Experts) -> None:
        """Raises ReplayRefused unless these are valid choices: every layer of this policy, in range, no duplicates."""
        _, layers, top_k = experts_RLK.shape
        if (layers, top_k) != (len(self.experts), self.top_k):
            raise ReplayRefused(
                f"routed experts are of {layers} layers with {top_k} experts a token, the policy has {len(self.experts)} "
                f"with {self.top_k}; the sampler serves another policy"
            )
        for layer, count in enumerate(self.experts):
            mine_RK = experts_RLK[:, layer]
            bad = (mine_RK >= count) & (mine_RK != UNKNOWN)
            if bad.any():
                row, place = (int(axis[0]) for axis in bad.nonzero())
                raise ReplayRefused(
                    f"expert {int(mine_RK[row, place])} of layer {layer} at position {row} does not exist: the policy "
                    f"has {count}; the sampler serves another policy"
                )
            known_RK = mine_RK[(mine_RK != UNKNOWN).all(-1)]
            ordered_RK = known_RK.copy()
            ordered_RK.sort(axis=-1)
            if (ordered_RK[:, 1:] == ordered_RK[:, :-1]).any():
                raise ReplayRefused(f"routed experts of layer {layer} name one expert twice for a token")
            if len(known_RK) != int((mine_RK != UNKNOWN).any(-1).sum()):
                raise ReplayRefused(f"routed experts of layer {layer} are incomplete for a token")


def shape_of(folder: Path) -> PolicyShape:
    """Shape of a policy folder, read without its weights. Raises PolicyUnreadable.

    Experts that do not support replay are omitted; where replay is required, the stage refuses the policy by name.
    """
    return _shape_of(folder, stamp(folder, CONFIG))


@lru_cache(maxsize=16)
def _shape_of(folder: Path, _files: Stamp) -> PolicyShape:
    from trainer.policy.store import load_config

    config = load_config(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    try:
        found = routers(model)
    except RouterUnknown:
        found = []
    return PolicyShape.of(int(config.get_text_config().vocab_size), found)
