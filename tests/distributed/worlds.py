"""Small worlds of real processes over gloo, and what they train: tiny random policies of the library's classes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from tests.support.processes import forkserver
from tests.trainer.router_replay.moe import BASE, EXPERTS, TOP_K, VOCAB, make
from trainer.config import ObjectiveConfig, OptimizerConfig, ParallelConfig
from trainer.distributed.learner import ShardedBackend
from trainer.distributed.parallel_dims import Meshes, arrange
from trainer.learning.backend import SingleProcess
from trainer.learning.importance_sampling import correction_of
from trainer.learning.step import Learner
from trainer.routed_experts import RoutedExperts, SamplingMasks
from trainer.types import TrainGroup, TrainSample

DEADLINE = 400.0
"""Seconds that a world may take: a rank that waits for a lost one must not hold up the suite."""

DENSE: dict[str, Any] = {key: value for key, value in BASE.items() if key != "num_experts_per_tok"}


def policy(family: str, seed: int = 0) -> PreTrainedModel:
    """fp32, weights wide enough that nothing is near uniform."""
    if family in ("qwen3", "llama"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model: PreTrainedModel = (
                Qwen3ForCausalLM(Qwen3Config(**DENSE, head_dim=16, tie_word_embeddings=True))
                if family == "qwen3"
                else LlamaForCausalLM(LlamaConfig(**DENSE))
            )
            for tensor in model.parameters():
                if tensor.ndim > 1:
                    torch.nn.init.normal_(tensor, std=0.2)
        return model.float()
    return make(family, seed)


def groups(*, experts_of: PreTrainedModel | None = None, rows: int = 7, seed: int = 0) -> list[TrainGroup]:
    """One group of uneven samples; the second knows which tokens were open, and all know experts if a policy is given."""
    draw = random.Random(seed)
    samples = []
    for row in range(rows):
        length = draw.randint(6, 40)
        tokens = [draw.randrange(VOCAB) for _ in range(length)]
        mask = [0, 0] + [int(draw.random() < 0.6) for _ in range(length - 2)]
        mask[-1] = 1
        advantage = draw.uniform(-1, 1)
        support = [
            sorted({token, *draw.sample(range(VOCAB), 20)}) if m else [] for token, m in zip(tokens, mask, strict=True)
        ]
        samples.append(
            TrainSample(
                tokens=tokens,
                loss_mask=mask,
                sampler_logprobs=[-draw.uniform(3, 6) * m for m in mask],
                advantages=[advantage * m for m in mask],
                support=SamplingMasks.pack(support) if row == 1 else None,
                experts=_experts(experts_of, length, draw) if experts_of is not None else None,
            )
        )
    return [
        TrainGroup(group_id="g", prompt_index=0, dispatched_version=0, oldest_version=0, rewards=[0.0], samples=samples)
    ]


def _experts(model: PreTrainedModel, length: int, draw: random.Random) -> RoutedExperts:
    import numpy as np

    layers = sum(type(module).__name__.endswith("Router") for module in model.modules())
    chosen = [[draw.sample(range(EXPERTS), TOP_K) for _ in range(layers)] for _ in range(length - 1)]
    return RoutedExperts.pack(np.array(chosen, dtype=np.uint16))


LEARNING_RATE = 1e-3
BACKEND = ("precision", "lm_head_chunk_size", "compiled")
OBJECTIVE = ObjectiveConfig(loss_divisor=64.0, router_replay_threshold=0.0)


def settings(**changes: Any) -> dict[str, Any]:
    objective = changes.pop("objective", OBJECTIVE)
    return {
        "objective": objective,
        "correction": correction_of(objective),
        "optimizer": OptimizerConfig(learning_rate=LEARNING_RATE, warmup_steps=0, max_grad_norm=0.5, weight_decay=0.1),
        "temperature": 0.8,
        "total_steps": 100,
        "micro_batch_tokens": 60,
    } | changes


def alone(model: PreTrainedModel, **changes: Any) -> Learner:
    """A learner in this process; `changes` are of its settings, and of its backend."""
    of_backend = {name: changes.pop(name) for name in BACKEND if name in changes}
    return Learner(model, **settings(**changes), backend=SingleProcess(**of_backend))


def sharded(model: PreTrainedModel, config: ParallelConfig, **changes: Any) -> Learner:
    """A learner of this rank."""
    folders = {name: changes.pop(name) for name in ("folder", "reference_folder") if name in changes}
    return Learner(model, **settings(**changes), backend=ShardedBackend(meshes(config), **folders))


def ranks_of(learner: Learner) -> ShardedBackend:
    assert isinstance(learner.backend, ShardedBackend)
    return learner.backend


def meshes(config: ParallelConfig) -> Meshes:
    return arrange(config, torch.device("cpu"))


def parallel(ranks: int, **sizes: Any) -> ParallelConfig:
    sizes.setdefault("dp_shard", ranks // (sizes.get("cp", 1) * sizes.get("dp_replicate", 1)))
    return ParallelConfig(world_size=ranks, **sizes)


def run_world(ranks: int, function: Callable[..., None], folder: Path, *args: Any, deadline: float = DEADLINE) -> None:
    """`function(rank, *args)` in `ranks` processes of one gloo group; fails with the first rank's traceback."""
    context = forkserver()
    place = folder / f"world-{time.monotonic_ns()}"
    place.mkdir()
    processes = [context.Process(target=_rank, args=(rank, ranks, str(place), function, args)) for rank in range(ranks)]
    for process in processes:
        process.start()
    end = time.monotonic() + deadline
    try:
        while any(process.is_alive() for process in processes):
            for process in processes:
                process.join(0.05)
            failed = [rank for rank, process in enumerate(processes) if process.exitcode not in (None, 0)]
            if failed or time.monotonic() > end:
                break
    finally:
        late = [process for process in processes if process.is_alive()]
        for process in late:
            process.kill()
        for process in processes:
            process.join()
    errors = "\n".join(path.read_text() for path in sorted(place.glob("*.error")))
    codes = [process.exitcode for process in processes]
    assert not any(codes), errors or f"ranks ended with {codes} within {deadline:g} s"


def _rank(rank: int, ranks: int, place: str, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    import traceback

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{place}/rendezvous", rank=rank, world_size=ranks)
    try:
        function(rank, *args)
    except BaseException:
        Path(place, f"{rank}.error").write_text(f"rank {rank}:\n{traceback.format_exc()}")
        raise
    distributed.destroy_process_group()
