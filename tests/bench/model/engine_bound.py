"""How near the engine is to what one core can do: a lower bound of a call's seconds, from what the core was measured to do.

Arithmetic: FLOPs that the tokens need (`trainer/learning/flops.py`, prompts of a group once) at the speed of the fastest product
of two matrices. Memory: the weights once a step, and the keys and values that each token looks at, at the speed of the
fastest copy of a buffer that no cache holds. The bound is the larger of both; caches may serve what is counted as memory.
"""

from __future__ import annotations

import time

import torch
from transformers import PreTrainedModel

from trainer.learning.flops import Tokens, fastest_product, shape_of

BYTES = 4
BUFFER = 64 * 2**20
"""Words of the buffer that is copied."""
ROUNDS = 5


def bandwidth() -> float:
    """Bytes a second of one thread, read and written."""
    here, there = torch.ones(BUFFER), torch.zeros(BUFFER)
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        there.copy_(here)
        best = min(best, time.perf_counter() - began)
    return 2 * BYTES * BUFFER / best


def work(prompts: int, prompt: int, rows: int, new: int) -> Tokens:
    """Of `rows` continuations by `new` tokens of `prompts` prompts: the last token of each is sampled and not run."""
    behind = range(prompt + 1, prompt + new)
    pairs = prompts * prompt * (prompt + 1) // 2 + rows * sum(behind)
    return Tokens(prompts * prompt + rows * (new - 1), rows * new, pairs)


def seconds(model: PreTrainedModel, tokens: Tokens, steps: int) -> dict[str, float]:
    """At least, for `tokens` in `steps` steps, by arithmetic and by memory."""
    config = model.config
    shape = shape_of(model)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    looked_at = 2 * config.num_hidden_layers * config.num_key_value_heads * size * tokens.pairs
    moved = BYTES * (steps * (shape.body + shape.head) + looked_at)
    arithmetic = 2.0 * (shape.body * tokens.tokens + shape.head * tokens.predicted + shape.pair * tokens.pairs)
    return {
        "arithmetic": arithmetic / fastest_product(torch.device("cpu"), torch.float32),
        "memory": moved / bandwidth(),
    }
