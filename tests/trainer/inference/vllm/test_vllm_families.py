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
}
"""As published: kernels are written for these."""
SIZES_OF: dict[str, dict[str, Any]] = {
    "qwen3-moe": EXPERTS,
    "deepseek-v3": {**EXPERTS, **LATENT},
    "glm-4-moe": EXPERTS,
}


@pytest.mark.parametrize("name", TABLE)
async def test_a_family_is_served_and_updated_in_place(name: str, tmp_path: Path) -> None:
    folder = published(TABLE[name], tmp_path / "policy", **{**SIZES, **SIZES_OF.get(name, {})})
    policy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with vllm_server.server(vllm_server.environment(), folder, "--skip-tokenizer-init") as url:
        await in_place_equals_fresh(url, policy, folder, tmp_path)
