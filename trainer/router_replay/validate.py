"""Validation of recorded token ids and experts against the policy's configuration.

Imports no torch: rollout workers check what an engine sent. Shape suffixes: R rows, L MoE layers, K experts a token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trainer.routed_experts import UNKNOWN, Experts, ReplayRefused
from trainer.router_replay import EXPERTS
from trainer.stamps import CONFIG, Stamp, stamp

Config = Mapping[str, Any]


def _every_layer(config: Config, layer: int) -> bool:
    return True


def _behind_dense_layers(config: Config, layer: int) -> bool:
    return layer >= int(config["first_k_dense_replace"])


def _sparse_steps(config: Config, layer: int) -> bool:
    step = int(config.get("decoder_sparse_step", 1))
    return layer not in (config.get("mlp_only_layers") or ()) and (layer + 1) % step == 0


FAMILIES: dict[str, Callable[[Config, int], bool]] = {
    "mixtral": _every_layer,
    "olmoe": _every_layer,
    "qwen2_moe": _sparse_steps,
    "qwen3_moe": _sparse_steps,
    "deepseek_v3": _behind_dense_layers,
    "glm4_moe": _behind_dense_layers,
}
"""Which layers have experts, by model type, for each family that `families.py` can replay. A test compares the two."""


@dataclass(frozen=True, slots=True)
class PolicyShape:
    vocabulary: int
    """Rows of the embedding; every token id is smaller."""
    experts: tuple[int, ...]
    """Number of experts in each MoE layer, in layer order; empty for a dense policy."""
    top_k: int

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
    """Shape of a policy folder, read from its `config.json`. Raises ValueError.

    Experts that do not support replay are omitted; where replay is required, the stage refuses the policy by name.
    """
    return _shape_of(folder, stamp(folder, CONFIG))


@lru_cache(maxsize=16)
def _shape_of(folder: Path, _files: Stamp) -> PolicyShape:
    try:
        whole = json.loads((folder / CONFIG[0]).read_text(encoding="utf-8"))
        config = whole.get("text_config") or whole
        vocabulary, has_experts = int(config["vocab_size"]), FAMILIES.get(config.get("model_type", ""))
        if has_experts is None:
            return PolicyShape(vocabulary, (), 0)
        count = next((int(config[name]) for name in EXPERTS if config.get(name)), 0)
        layers = int(config["num_hidden_layers"])
        experts = tuple(count for layer in range(layers) if count and has_experts(config, layer))
        return PolicyShape(vocabulary, experts, int(config["num_experts_per_tok"]) if experts else 0)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{folder / CONFIG[0]} does not describe a model: {error!r}; restore this file") from error
