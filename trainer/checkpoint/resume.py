"""Find the checkpoint that a run resumes from, and verify that it belongs to the run: same seed, same kind of policy.

Intact files do not prove this: a checkpoint of another run, copied or mounted in its place, has valid digests too. The
kind of a policy is read from configurations and tokenizers only, so that ranks of a large policy can check it as well.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from trainer.checkpoint.store import Checkpoint, CheckpointError, CheckpointStore
from trainer.policy.store import load_config, load_tokenizer

_UNSEEN = (
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_experts_per_tok",
    "hidden_act",
    "tie_word_embeddings",
)
"""Configuration fields that the weights' shapes do not reveal and that no stage changes."""
_TOLD = 3


def resumable(
    checkpoints: CheckpointStore, *, stage: str, policy_dir: Path, seed: int, whole: bool = True
) -> Checkpoint | None:
    """Return the newest checkpoint of the run that started from `policy_dir`; without the optimizer unless `whole`.

    Raises CheckpointError, PolicyUnreadable.
    """
    found = checkpoints.latest(stage=stage, whole=whole)
    if found is None:
        return None
    there, wanted = _kind(found.policy_dir), _kind(policy_dir)
    there["seed"], wanted["seed"] = found.state.seed, seed
    names = [*wanted, *(name for name in there if name not in wanted)]
    wrong = [
        f"{name} {there.get(name, 'missing')} instead of {wanted.get(name, 'none')}"
        for name in names
        if there.get(name) != wanted.get(name)
    ]
    if wrong:
        more = f", and {len(wrong) - _TOLD} more differences" if len(wrong) > _TOLD else ""
        raise CheckpointError(
            f"checkpoint {found.path} is of another run than this one, which started from {policy_dir}: "
            f"{'; '.join(wrong[:_TOLD])}{more}; remove this folder to resume from an earlier one, or start a new run from "
            "its policy"
        )
    return found


def unfit(path: Path, error: BaseException) -> CheckpointError:
    """Error for a checkpoint whose tensors do not match the run's policy and optimizer."""
    return CheckpointError(
        f"checkpoint {path} does not fit this policy or cannot be read ({error}); remove this folder to resume from an "
        "earlier one"
    )


def _kind(folder: Path) -> dict[str, Any]:
    """Properties that distinguish the policy in `folder` from other kinds, whatever its weights; most telling first."""
    config = load_config(folder)
    text = config.get_text_config()
    vocabulary = load_tokenizer(folder).get_vocab()
    digest = hashlib.sha256(json.dumps(vocabulary, sort_keys=True).encode()).hexdigest()
    return {
        "architecture": config.model_type,
        "vocabulary": f"{digest[:8]} of {len(vocabulary)} tokens",
        **{name: getattr(text, name) for name in _UNSEEN if hasattr(text, name)},
        **_shapes(config),
    }


def _shapes(config: PretrainedConfig) -> dict[str, list[int]]:
    """Weight shapes by name."""
    try:
        with torch.device("meta"):
            model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))
    except (ValueError, RuntimeError, TypeError, OSError):
        return {}  # a class that needs its numbers to be made; what it cannot load, its loader names
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
