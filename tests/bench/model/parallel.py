"""`make bench NAME=parallel`: RL steps on ranks over gloo beside the same steps in one process.

The same groups (lognormal lengths) and the same policy (Qwen3, 4 layers of 256, vocabulary 4096) are trained for --steps steps
by one process and by 2 ranks (--ranks) that share weights and optimizer state (FSDP2). Reported are the largest relative
difference of the losses and of the gradient norms, the bytes of weights, gradients and optimizer state that a rank holds as a
share of one process's, and tokens per second of wall time against one process's: with fewer free processors than ranks that
last figure says nothing. Nothing here runs on GPUs.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tests.bench import report
from tests.bench.model.engine import bigger
from tests.distributed.worlds import meshes, parallel, run_world
from trainer.config import ObjectiveConfig, OptimizerConfig
from trainer.distributed.learner import ShardedBackend
from trainer.distributed.muon import local
from trainer.learning.importance_sampling import correction_of
from trainer.learning.step import Learner
from trainer.types import TrainGroup, TrainSample

GOALS: dict[str, report.Goal] = {
    "loss_gap": ("<=", 1e-3), "norm_gap": ("<=", 1e-2), "memory_per_rank": ("<=", 0.55),
}  # fmt: skip
OBJECTIVE = ObjectiveConfig(loss_divisor=4096.0)
SETTINGS: dict[str, Any] = {
    "objective": OBJECTIVE,
    "correction": correction_of(OBJECTIVE),
    "optimizer": OptimizerConfig(learning_rate=1e-4, warmup_steps=0),
    "temperature": 1.0,
    "total_steps": 100,
    "micro_batch_tokens": 2048,
}


def groups(step: int) -> list[TrainGroup]:
    """Four groups of four rows that begin alike."""
    draw = random.Random(step)
    made = []
    for index in range(4):
        prompt = [draw.randrange(4096) for _ in range(48)]
        samples = []
        for _ in range(4):
            length = min(400, max(8, round(draw.lognormvariate(4.4, 0.7))))
            advantage = draw.uniform(-1.0, 1.0)
            samples.append(
                TrainSample(
                    tokens=prompt + [draw.randrange(4096) for _ in range(length)],
                    loss_mask=[0] * len(prompt) + [1] * length,
                    sampler_logprobs=[0.0] * len(prompt) + [-8.3] * length,
                    advantages=[0.0] * len(prompt) + [advantage] * length,
                )
            )
        made.append(
            TrainGroup(
                group_id=f"{step}-{index}",
                prompt_index=4 * step + index,
                dispatched_version=0,
                oldest_version=0,
                rewards=[0.0] * 4,
                samples=samples,
            )
        )
    return made


def measure(learner: Learner, steps: int) -> dict[str, Any]:
    """Losses, norms and speeds by step, and bytes that this process holds between steps."""
    facts: dict[str, Any] = {"loss": [], "norm": [], "speed": []}
    for step in range(1, steps + 1):
        batch = groups(step)
        began = time.perf_counter()
        values = learner.train(batch, step=step)
        facts["speed"].append(values["tokens/trained"] / (time.perf_counter() - began))
        facts["loss"].append(values["optim/loss"])
        facts["norm"].append(values["optim/grad_norm"])
    held = [*learner.model.parameters(), *learner.model.parameters(), *learner.state_tensors().values()]
    facts["bytes"] = sum(local(tensor).numel() * tensor.element_size() for tensor in held)
    return facts


def one_rank(rank: int, ranks: int, folder: str, steps: int) -> None:
    learner = Learner(bigger(), **SETTINGS, backend=ShardedBackend(meshes(parallel(ranks))))
    Path(folder, f"{rank}.json").write_text(json.dumps(measure(learner, steps)))


def gap(found: list[float], wanted: list[float]) -> float:
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(found, wanted, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="steps of reinforcement learning on ranks beside one process")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="parallel-") as folder:
        run_world(arguments.ranks, one_rank, Path(folder), arguments.ranks, folder, arguments.steps, deadline=1800.0)
        ranks = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(arguments.ranks)]
    alone = measure(Learner(bigger(), **SETTINGS), arguments.steps)
    metrics = {
        "loss_gap": gap(ranks[0]["loss"], alone["loss"]),
        "norm_gap": gap(ranks[0]["norm"], alone["norm"]),
        "memory_per_rank": max(rank["bytes"] for rank in ranks) / alone["bytes"],
        "speed_ratio": median(ranks[0]["speed"][1:]) / median(alone["speed"][1:]),
    }
    report.emit(
        "parallel", {name: round(value, 6) for name, value in metrics.items()}, goals=GOALS,
        conditions={"ranks": arguments.ranks, "steps": arguments.steps, "backend": "gloo", "losses": alone["loss"]},
    )  # fmt: skip


if __name__ == "__main__":
    main()
