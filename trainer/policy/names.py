"""Weight names in memory versus Hugging Face checkpoints and the weight store.

Both are equal for dense models. In memory the library stacks a layer's experts into one tensor; a checkpoint names each
expert. Engines and people read checkpoints, so published weights use checkpoint names.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion


def stacks_experts(model: PreTrainedModel) -> bool:
    return any(name.endswith(".experts.gate_up_proj") for name, _ in model.named_parameters())


def checkpoint_state(model: PreTrainedModel, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`state` of `model` under checkpoint names. Experts are views of the stacked tensors where possible."""
    return revert_weight_conversion(model, dict(state)) if stacks_experts(model) else dict(state)


def on_cpu(model: PreTrainedModel) -> dict[str, Tensor]:
    """The model's state on the CPU, sharing memory if it is there already. Tied weights stay one tensor."""
    state = model.state_dict(keep_vars=True)
    moved = {id(tensor): tensor.detach().cpu() for tensor in state.values()}
    return {name: moved[id(tensor)] for name, tensor in state.items()}


def load_checkpoint_state(model: PreTrainedModel, state: Mapping[str, Tensor]) -> None:
    """Copy a checkpoint's tensors into `model`. Raises RuntimeError when they belong to another model."""
    model.load_state_dict(dict(memory_state(model, state)))


def memory_state(model: PreTrainedModel, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A checkpoint's tensors under in-memory names. Raises RuntimeError when they belong to another model."""
    return build_from_state(type(model), model.config, state).state_dict() if stacks_experts(model) else state


_building = threading.Lock()
"""The library replaces functions of torch while it builds a model; of two concurrent builds, one misses its tied
weights."""


def build_from_state(
    kind: type[PreTrainedModel], config: Any, state: Mapping[str, Tensor], *, attention: str | None = None
) -> PreTrainedModel:
    """Build a float32 model of class `kind` with a checkpoint's tensors. Raises RuntimeError naming what is missing.

    `attention` is the library's choice by default: not every class has torch's (gpt-oss).
    """
    floats = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    with _building:
        model, report = cast(Any, kind).from_pretrained(
            None,
            config=config,
            state_dict=floats,
            output_loading_info=True,
            dtype="float32",
            attn_implementation=attention,
        )
    wrong = sorted([*report["missing_keys"], *report["unexpected_keys"]])
    if wrong:
        raise RuntimeError(f"the weights do not belong to this config.json: {wrong[0]} (and {len(wrong) - 1} more)")
    assert isinstance(model, PreTrainedModel)
    return model
