"""The checkpoint that a run goes on from, proven to be of this run: of its seed, and of the kind of policy it started with.

Whole files are no proof of that: a checkpoint of another run, put or mounted in this one's place, has digests that are right.
What a kind of policy is, is read from configurations and tokenizers alone, so that ranks of a large one can ask too.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from trainer.policy.store import load_config, load_tokenizer
from trainer.stages.checkpoint import Checkpoint, CheckpointError, CheckpointStore

_UNSEEN = (
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "num_experts_per_tok",
    "hidden_act",
    "tie_word_embeddings",
)
"""Of a configuration: what shapes of weights do not tell, and no stage changes."""
_TOLD = 3


def resumable(
    checkpoints: CheckpointStore, *, stage: str, policy_dir: Path, seed: int, whole: bool = True
) -> Checkpoint | None:
    """The newest checkpoint of the run that started from `policy_dir`, without the optimizer unless `whole`.

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
    """For a checkpoint whose tensors are not those of the run's policy and optimizer."""
    return CheckpointError(
        f"checkpoint {path} does not fit this policy or cannot be read ({error}); remove this folder to resume from an "
        "earlier one"
    )


def _kind(folder: Path) -> dict[str, Any]:
    """What makes the policy in `folder` another than others, whatever its numbers; what says most comes first."""
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
    """Of the weights, by name."""
    try:
        with torch.device("meta"):
            model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))
    except (ValueError, RuntimeError, TypeError, OSError):
        return {}  # a class that needs its numbers to be made; what it cannot load, its loader names
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
