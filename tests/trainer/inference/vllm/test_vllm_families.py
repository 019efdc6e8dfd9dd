"""Model families on vLLM's CPU build, where it supports their classes: served, updated in place, equal to a fresh load.

`make test-vllm` runs it. The embedded engine's part of the table is `tests/trainer/test_model_families.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests import vllm_server
from tests.trainer.inference.vllm.in_place import in_place_equals_fresh
from tests.trainer.test_model_families import TABLE, published

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("VLLM_URL"), reason="runs with `make test-vllm`"),
]
SIZES: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32, "max_position_embeddings": 1024}
EXPERTS: dict[str, Any] = {"moe_intermediate_size": 64}
LATENT: dict[str, Any] = {
    "head_dim": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "max_position_embeddings": 163_840,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 40,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    },
}
"""As published. vLLM's kernels are written for these sizes; it scores experts with a softmax unless `scoring_func` is there,
and its CPU build turns only the first head of a latent query unless the rope is YaRN."""
SIZES_OF: dict[str, dict[str, Any]] = {
    "qwen3-moe": EXPERTS,
    "deepseek-v3": {
        **EXPERTS,
        **LATENT,
    },
    "glm-4-moe": EXPERTS,
}


@pytest.mark.parametrize("name", TABLE)
async def test_a_family_is_served_and_updated_in_place(name: str, tmp_path: Path) -> None:
    folder = published(TABLE[name], tmp_path / "policy", **{**SIZES, **SIZES_OF.get(name, {})})
    policy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with vllm_server.server(vllm_server.environment(), folder, "--skip-tokenizer-init") as url:
        await in_place_equals_fresh(url, policy, folder, tmp_path)
