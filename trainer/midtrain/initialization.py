"""Random weights for mid-training from scratch, in the shape that a configuration gives."""

from __future__ import annotations

from typing import TypeVar

import torch
from transformers import PreTrainedConfig, PreTrainedModel, Qwen3ForCausalLM

from trainer.midtrain.copying import fits, prepare_copying

Model = TypeVar("Model", bound=PreTrainedModel)


def random_model(kind: type[Model], config: PreTrainedConfig, *, seed: int) -> Model:
    """A fresh model, which can already copy where its shape allows that.

    The same seed gives the same weights; the global generator is untouched.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(config)
    if isinstance(model, Qwen3ForCausalLM) and fits(model.config):
        prepare_copying(model, seed=seed)
    return model
