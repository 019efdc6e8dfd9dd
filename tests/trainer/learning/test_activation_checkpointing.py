"""Layers that are computed again, or compiled: the same step."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.distributed import worlds
from trainer.learning.activation_checkpointing import apply_activation_checkpointing, compile_each
from trainer.types import TrainGroup

pytestmark = pytest.mark.integration


def alike(family: str) -> list[TrainGroup]:
    """Rows of which some begin alike, as attempts at one prompt do."""
    (group,) = worlds.groups(experts_of=worlds.policy(family) if "moe" in family else None)
    opening = group.samples[0].tokens[:5]
    samples = [
        sample.model_copy(update={"tokens": [*opening, *sample.tokens[5:]], "support": None})
        for sample in group.samples
    ]
    return [group.model_copy(update={"samples": samples})]


def compare(family: str, found: Any, changes: dict[str, Any], rel: float) -> None:
    """Two steps of `found` against those of a policy as it comes."""
    groups = alike(family)
    plain = worlds.alone(worlds.policy(family), **changes)
    for step in (1, 2):
        wanted, got = plain.train(groups, step=step), found.train(groups, step=step)
        for name in ("optim/loss", "optim/grad_norm", "policy/entropy"):
            assert got[name] == pytest.approx(wanted[name], rel=rel, abs=1e-5), (name, step)


@pytest.mark.parametrize("family", ["qwen3", "qwen3-moe"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_layers_that_are_computed_again_give_the_same_step(family: str, precision: str) -> None:
    """Rows that share what they begin with, too: attention has to be the same one in the second forward pass."""
    model = worlds.policy(family)
    apply_activation_checkpointing(model)
    calls = []
    model.get_decoder().layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    learner = worlds.alone(model, precision=precision, micro_batch_tokens=10_000)
    compare(family, learner, {"precision": precision, "micro_batch_tokens": 10_000}, 1e-5)
    assert len(calls) == 4  # one micro-batch, two steps, each layer twice


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_layers_give_the_same_step(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one graph each; the slow test also with the code that is made of it (a C++ compiler on a CPU)."""
    model = worlds.policy("qwen3")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *args: real(*args, backend=backend))
    compile_each(model)
    compare("qwen3", worlds.alone(model, compiled=True), {}, 1e-3)
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["graph_break"], dict(counters["graph_break"])
