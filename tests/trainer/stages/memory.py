"""Sources and sinks in memory, and groups without an engine, for tests of stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from trainer import policy as policies
from trainer.algorithms.advantage import group_advantages
from trainer.config import CheckpointConfig, ObjectiveConfig, OptimizerConfig, RLConfig
from trainer.errors import BatchTimeout
from trainer.toy.preset import toy_rl
from trainer.types import TrainGroup, TrainSample

BASE_POLICY = Path(__file__).parents[3] / "policies" / "base"


def foreign_policy(folder: Path, model: PreTrainedModel | None = None, **changes: Any) -> Path:
    """A policy of another kind than the shipped one, with its tokenizer: `model`, or the shipped configuration changed."""
    base = policies.load(BASE_POLICY)
    if model is None:
        model = Qwen3ForCausalLM(Qwen3Config(**(base.model.config.to_dict() | changes)))
    return policies.save(replace(base, model=model), folder)


def small_config(**changes: Any) -> RLConfig:
    settings = {
        "steps": 4,
        "groups_per_step": 2,
        "group_size": 2,
        "max_in_flight_groups": 2,
        "optimizer": OptimizerConfig(learning_rate=1e-3, warmup_steps=0),
        "objective": ObjectiveConfig(loss_divisor=32.0),
        "checkpoint": CheckpointConfig(every_steps=2, keep=1),
    }
    return toy_rl(**(settings | changes))


def make_group(model: PreTrainedModel, index: int, *, version: int = 0, temperature: float = 0.8) -> TrainGroup:
    """Two random sequences with the model's own log-probabilities, one rewarded."""
    generator = torch.Generator().manual_seed(index)
    rewards = [1.0, 0.0]
    samples = []
    for advantage in group_advantages(rewards):
        length = int(torch.randint(8, 20, (1,), generator=generator))
        tokens = torch.randint(10, 400, (length,), generator=generator)
        with torch.no_grad():
            logps = torch.log_softmax(model(tokens[None]).logits[0].float() / temperature, -1)
        mask = [0] * 4 + [1] * (length - 4)
        samples.append(
            TrainSample(
                tokens=tokens.tolist(),
                loss_mask=mask,
                sampler_logprobs=[float(logps[t - 1, tokens[t]]) if m else 0.0 for t, m in enumerate(mask)],
                advantages=[advantage * m for m in mask],
            )
        )
    return TrainGroup(
        group_id=f"g{index}",
        prompt_index=index,
        dispatched_version=version,
        oldest_version=version,
        rewards=rewards,
        samples=samples,
    )


class ListSource:
    """A recorded assignment of groups to steps."""

    def __init__(self, groups: list[TrainGroup], per_step: int) -> None:
        self.groups, self.per_step = groups, per_step
        self.asked: list[int] = []

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        self.asked.append(step)
        batch = self.groups[(step - 1) * self.per_step : step * self.per_step]
        if not batch:
            raise BatchTimeout(f"no batch for step {step} within {timeout:g} s")
        return batch

    def flow(self) -> Mapping[str, float]:
        return {"groups/dispatched": float(len(self.groups))}


class MemorySink:
    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.values: dict[int, dict[str, float]] = {}
        self.heard: Callable[[int], None] = lambda version: None
        """Is told of each version, as a source may want to be."""
        self.versions: list[tuple[int, str]] = []
        self.checkpoints: list[tuple[int, bool]] = []
        self.events: list[tuple[str, str]] = []
        self.told: list[Mapping[str, Any]] = []
        """What events carry beside their words."""
        self.done = 0

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.values.setdefault(step, {}).update(values)

    def progress(self, done: int, total: int) -> None:
        self.done = done

    def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
        self.versions.append((version, digest))
        if values:
            self.values.setdefault(version, {}).update(values)
        self.heard(version)

    def checkpoint_saved(self, step: int, path: Path, *, final: bool) -> None:
        self.checkpoints.append((step, final))

    def event(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        self.events.append((level, message))
        if data:
            self.told.append(data)

    def should_stop(self) -> bool:
        return self.stop_after is not None and self.done >= self.stop_after
