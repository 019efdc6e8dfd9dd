"""What both sides of the trainer's bench have in common: prompts, sizes and the reward. Imports nothing of either."""

from __future__ import annotations

import json
import random
import resource
import sys
from typing import Any

PROMPTS, GROUP, PROMPT_TOKENS, NEW, RATE = 8, 8, 64, 128, 1e-5
TRL_ROWS = 16
"""Rows of TRL's micro-batches."""
STEP = '{"step":'
"""How a line of `say` begins."""


def say(step: float, generate: float) -> None:
    """One line of a finished step: CPU seconds of all of it and of generation, largest resident size so far (MiB)."""
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = json.dumps({"step": round(step, 3), "generate": round(generate, 3), "mib": round(mib)})
    for stream in (sys.stdout, sys.stderr):
        print(line, file=stream, flush=True)


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
