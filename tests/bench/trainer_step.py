"""What both sides of the trainer's bench have in common: prompts, sizes and the reward. Imports nothing of either."""

from __future__ import annotations

import random
from typing import Any

PROMPTS, GROUP, PROMPT_TOKENS, NEW, RATE = 8, 8, 64, 128, 1e-5


def prompts_of(tokenizer: Any, steps: int) -> list[str]:
    """`PROMPTS` texts a step of about `PROMPT_TOKENS` tokens."""
    draw = random.Random(0)
    words = ["value", "index", "return", "total", "for", "item", "in", "list", "def", "result", "self", "import"]
    texts = []
    for _ in range(PROMPTS * steps):
        text = ""
        while len(tokenizer(text)["input_ids"]) < PROMPT_TOKENS:
            text += f" {draw.choice(words)}"
        texts.append(text)
    return texts


def reward(token_ids: list[int]) -> float:
    """Something that differs between samples and costs nothing: the share of even tokens."""
    return sum(token % 2 == 0 for token in token_ids) / len(token_ids)
