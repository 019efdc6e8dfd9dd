"""Supervised steps on ranks, packed documents included, against each document computed alone in one process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.distributed.worlds import LEARNING_RATE, meshes, parallel, policy, run_world
from tests.trainer.router_replay.moe import VOCAB
from trainer.config import OptimizerConfig
from trainer.distributed.fsdp import whole
from trainer.distributed.supervised_step import ShardedSupervisedLearner
from trainer.learning.optimizers import NamedOptimizer
from trainer.learning.supervised import Example

pytestmark = pytest.mark.integration

OPTIMIZER = OptimizerConfig(name="muon", learning_rate=LEARNING_RATE, warmup_steps=0, max_grad_norm=0.5)


def rows(seed: int) -> list[Example]:
    """Five rows of one to three documents each."""
    draw = random.Random(seed)
    out = []
    for _ in range(5):
        lengths = [draw.randint(3, 14) for _ in range(draw.randint(1, 3))]
        starts = tuple(sum(lengths[:at]) for at in range(len(lengths)))
        ids = [draw.randrange(VOCAB) for _ in range(sum(lengths))]
        weights = [0.0 if at in starts else draw.choice([0.0, 0.05, 1.0]) for at in range(len(ids))]
        out.append(Example(ids, weights, starts))
    return out


def documents(batch: list[Example]) -> list[tuple[list[int], list[float]]]:
    return [
        (row.ids[start:end], row.weights[start:end])
        for row in batch
        for start, end in zip(row.starts, [*row.starts[1:], len(row.ids)], strict=True)
    ]


def reference(family: str, steps: int) -> tuple[nn.Module, list[tuple[float, float]]]:
    model = policy(family).train()
    optimizer = NamedOptimizer(model, OPTIMIZER)
    facts = []
    for step in range(1, steps + 1):
        parts = documents(rows(step))
        total = sum(sum(weights) for _, weights in parts)
        loss = torch.zeros(())
        for ids, weights in parts:
            logps = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1].float(), -1)
            told = logps.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
            loss = loss - (told * torch.tensor(weights[1:])).sum() / total
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER.max_grad_norm))
        optimizer.step(OPTIMIZER.learning_rate)
        facts.append((float(loss), norm))
    return model, facts


def assert_equal(family: str, sizes: dict[str, Any]) -> None:
    ranks = torch.distributed.get_world_size()
    model = policy(family)
    learner = ShardedSupervisedLearner(model, meshes(parallel(ranks, **sizes)), optimizer=OPTIMIZER, total_steps=100)
    other, facts = reference(family, 2)
    for step, (loss, norm) in enumerate(facts, 1):
        values = learner.train(rows(step), step=step)
        assert values["loss/train"] == pytest.approx(loss, rel=1e-4), (family, sizes, step)
        assert values["optim/grad_norm"] == pytest.approx(norm, rel=1e-3), (family, sizes, step)
    for (name, mine), wanted in zip(model.named_parameters(), other.parameters(), strict=True):
        assert float((whole(mine) - wanted).detach().abs().mean()) < 0.01 * LEARNING_RATE, (family, sizes, name)


def two_ranks(rank: int) -> None:
    assert_equal("qwen3", {"cp": 2})
    assert_equal("deepseek-v3", {"cp": 2, "ep": 2, "lm_head_chunk_size": 300})
    assert_equal("llama", {})


@pytest.mark.timeout(500)
def test_two_ranks_learn_what_one_would(tmp_path: Path) -> None:
    run_world(2, two_ranks, tmp_path)
