"""What both sides of the trainer's bench have in common: sizes, clock, prompts and the reward. Imports nothing of either."""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

RATE = 1e-5
STEP = '{"step":'
"""How a line of `Teller` begins."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of one step."""

    prompts: int = 8
    group: int = 8
    prompt_tokens: int = 64
    new: int = 128
    rows: int = 8
    """Rows of our micro-batches."""
    trl_rows: int = 16
    device: str = "cpu"
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the training's autocast, on both sides."""
    threads: int = 1
    """0: as many as torch takes."""

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Sizes:
        return cls(**json.loads(text))


class Teller:
    """One line of each finished step: its seconds, what it computed, and the most memory so far.

    Seconds are CPU seconds of the process, or on a GPU wall time until it has done all that it was given; memory is the
    largest resident size, or what torch had allocated on the GPU at most.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._most = 0.0

    def now(self) -> float:
        if self.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def saw(self, size: float) -> None:
        """Bytes that were there at once, where somebody else asked (which begins a new peak) and knows."""
        self._most = max(self._most, size)

    def say(self, step: float, generate: float, **more: float) -> None:
        if self.device.type == "cpu":
            self.saw(peak_resident())
        else:
            self.saw(torch.cuda.max_memory_allocated(self.device))
        seconds = {name: round(value, 6) for name, value in {"step": step, "generate": generate, **more}.items()}
        line = json.dumps(seconds | {"mib": round(self._most / 2**20)})
        for stream in (sys.stdout, sys.stderr):
            print(line, file=stream, flush=True)


def peak_resident() -> int:
    """Bytes that this process had resident at most. `getrusage` would count what its parent had before it was started."""
    status = Path("/proc/self/status").read_text()
    [peak] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peak) * 1024


def prompts_of(tokenizer: Any, sizes: Sizes, steps: int) -> list[str]:
    """`sizes.prompts` texts a step of about `sizes.prompt_tokens` tokens."""
    draw = random.Random(0)
    words = ["value", "index", "return", "total", "for", "item", "in", "list", "def", "result", "self", "import"]
    texts = []
    for _ in range(sizes.prompts * steps):
        text = ""
        while len(tokenizer(text)["input_ids"]) < sizes.prompt_tokens:
            text += f" {draw.choice(words)}"
        texts.append(text)
    return texts


def reward(token_ids: list[int]) -> float:
    """Something that differs between samples and costs nothing: the share of even tokens."""
    return sum(token % 2 == 0 for token in token_ids) / len(token_ids)
