"""Names of weights: as a model holds them in memory, and as Hugging Face checkpoints and the weight store have them.

Both are the same for dense models. In memory the library stacks the experts of a layer into one tensor; a checkpoint
names each expert. Engines and people read checkpoints, so those names are what is published.
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
    """`state` of `model` under the names of a checkpoint. Experts are views of the stacked tensors where they can be."""
    return revert_weight_conversion(model, dict(state)) if stacks_experts(model) else dict(state)


def on_cpu(model: PreTrainedModel) -> dict[str, Tensor]:
    """The model's state on the CPU, where it may be already: the same memory then. Tied weights stay one tensor."""
    state = model.state_dict(keep_vars=True)
    moved = {id(tensor): tensor.detach().cpu() for tensor in state.values()}
    return {name: moved[id(tensor)] for name, tensor in state.items()}


def load_checkpoint_state(model: PreTrainedModel, state: Mapping[str, Tensor]) -> None:
    """Copies a checkpoint's tensors into `model`. Raises RuntimeError when they are of another model."""
    model.load_state_dict(dict(memory_state(model, state)))


def memory_state(model: PreTrainedModel, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A checkpoint's tensors under the names that `model` has in memory. Raises RuntimeError when they are of another model."""
    return build_from_state(type(model), model.config, state).state_dict() if stacks_experts(model) else state


_building = threading.Lock()
"""The library exchanges functions of torch while it builds a model: of two at once, one misses its tied weights."""


def build_from_state(
    kind: type[PreTrainedModel], config: Any, state: Mapping[str, Tensor], *, attention: str = "sdpa"
) -> PreTrainedModel:
    """A model of the class `kind` in float32 with a checkpoint's tensors. Raises RuntimeError naming what is missing."""
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
