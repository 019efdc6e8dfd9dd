"""Models from tensors under a checkpoint's names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from transformers import Qwen3ForCausalLM

from tests.trainer.inference import models
from trainer.policy.names import build_from_state


def test_threads_that_build_models_at_once_do_not_disturb_each_other() -> None:
    """An inference server loads deployments side by side; the library alone is not made for it."""
    model = models.make("qwen3")
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}  # it is tied
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda _: build_from_state(Qwen3ForCausalLM, model.config, state), range(24)))
    assert all(torch.equal(one.lm_head.weight, model.lm_head.weight) for one in built)
