"""A step on another device than the CPU: everything that it needs goes there once, and comes back where others read it.

The device is a double with real values (`tests/trainer/other_device.py`): a tensor that was left on the CPU fails a test here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.distributed import worlds
from tests.trainer.other_device import other_device
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import (
    LoraConfig,
    ObjectiveConfig,
    OptimizerConfig,
    ParallelConfig,
    RLConfig,
    TextualFeedbackConfig,
)
from trainer.errors import BatchTimeout, StageError
from trainer.learning.supervised import Example, SupervisedLearner
from trainer.midtrain.stage import run_midtrain
from trainer.rl.stage import run_rl
from trainer.stages.device import device_of
from trainer.toy.preset import toy_midtrain
from trainer.types import HintedTurn, TrainGroup
from trainer.weights import WeightStore

pytestmark = pytest.mark.integration

PLACES = ("trainer.rl.learner.device_of", "trainer.stages.supervised_loop.device_of")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Stages compute on the other device."""
    with other_device() as device:
        for place in PLACES:
            monkeypatch.setattr(place, lambda _: device)
        yield device


def close(mine: nn.Module, other: nn.Module, within: float) -> None:
    """All weights of `mine` as those of `other` up to `within` of how far a step may move them."""
    for (name, there), here in zip(mine.named_parameters(), other.parameters(), strict=True):
        assert float((there.detach().cpu() - here.detach()).abs().mean()) < within * worlds.LEARNING_RATE, name


FAMILIES = ("qwen3", "llama", "qwen3-moe", "deepseek-v3")
CHANGES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"precision": "bfloat16"},
    "bfloat16-chunks": {"precision": "bfloat16", "lm_head_chunk_size": 500},
    "chunks": {"lm_head_chunk_size": 500},
}
FAST = {
    ("float32", "qwen3"),
    ("float32", "deepseek-v3"),
    ("bfloat16", "qwen3-moe"),
    ("bfloat16-chunks", "llama"),
    ("chunks", "qwen3-moe"),
}
"""Each family and each change."""


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        pytest.param(changes, family, marks=() if (changes, family) in FAST else pytest.mark.slow)
        for changes in CHANGES
        for family in FAMILIES
    ],
)
def test_steps_give_what_they_give_on_the_cpu(family: str, changes: str) -> None:
    same_steps(family, CHANGES[changes])


def same_steps(family: str, changes: dict[str, Any]) -> None:
    here = worlds.policy(family)
    learners = [worlds.alone(here, **changes)]
    groups = worlds.groups(experts_of=here if "moe" in family or "deepseek" in family else None)
    wanted = [learners[0].train(groups, step=step) for step in (1, 2)]
    with other_device() as device:
        there = worlds.policy(family).to(device)
        learner = worlds.alone(there, **changes)
        found = [learner.train(groups, step=step) for step in (1, 2)]
        assert all(tensor.device == device for tensor in (*there.parameters(), *there.buffers()))
        state = learner.state_tensors()
        assert state and all(tensor.device.type == "cpu" for tensor in (*state.values(), *learner.weights().values()))
        (streams,) = learner.streams(groups, step=2)
        assert streams.samples[0].array("trainer_logprobs") is not None
        within = 0.5 if changes.get("precision") == "bfloat16" else 0.02  # of a first step, whose size is that of all
        close(there, here, within)
    rel = 0.05 if changes.get("precision") == "bfloat16" else 1e-4
    for step in (0, 1):
        for name in ("optim/loss", "optim/grad_norm", "policy/entropy", "correction/ess", "tokens/trained"):
            assert found[step][name] == pytest.approx(wanted[step][name], rel=rel, abs=1e-4), (name, step)


def test_the_reference_and_hints_are_there_too(tmp_path: Path, elsewhere: torch.device) -> None:
    """A run with everything on, stopped and resumed, against the same on the CPU."""
    base = policies.load(BASE_POLICY).model
    hint = HintedTurn(rule="r", tokens=[5, 6, 7, 9, 10], hinted_tokens=[5, 6, 20, 21, 7, 9, 10], turn_tokens=2)
    groups = [make_group(base, index).model_copy(update={"hints": [hint]}) for index in range(8)]
    config = small_config(
        objective=ObjectiveConfig(kl_coefficient=0.1, reference="lagged", reference_steps=2),
        textual_feedback=TextualFeedbackConfig(coefficient=0.5, min_shift=0.0),
    )
    stopped = tmp_path / "there"
    with pytest.raises(BatchTimeout):
        rl(stopped, config, groups[:6])
    there, moved = rl(stopped, config, groups)
    assert any("resumed" in text for _, text in there.events)
    compared(tmp_path, config, groups, there, moved)


@pytest.mark.slow
def test_adapters_are_there_too(tmp_path: Path, elsewhere: torch.device) -> None:
    base = policies.load(BASE_POLICY).model
    groups = [make_group(base, index) for index in range(8)]
    config = small_config(lora=LoraConfig(rank=4))
    compared(tmp_path, config, groups, *rl(tmp_path / "there", config, groups))


def rl(root: Path, config: RLConfig, groups: list[TrainGroup]) -> tuple[MemorySink, dict[str, torch.Tensor]]:
    sink, store = MemorySink(), WeightStore(root / "weights", dtype="float32")
    run_rl(
        policy_dir=BASE_POLICY,
        config=config,
        seed=0,
        source=ListSource(groups, config.groups_per_step),
        sink=sink,
        store=store,
        checkpoints=CheckpointStore(root / "checkpoints", keep=1),
        keep_streams=lambda _: None,
    )
    return sink, store.load(config.steps).state


def compared(
    root: Path, config: RLConfig, groups: list[TrainGroup], there: MemorySink, moved: dict[str, torch.Tensor]
) -> None:
    """With the same run on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        for place in PLACES:
            patch.setattr(place, lambda _: torch.device("cpu"))
        here, wanted = rl(root / "here", config, groups)
    last = config.steps
    for name in ("optim/loss", "optim/grad_norm"):
        assert there.values[last][name] == pytest.approx(here.values[last][name], rel=1e-3, abs=1e-6), name
    start = policies.load(BASE_POLICY).model.state_dict()
    apart = sum(float((moved[name] - wanted[name]).norm()) for name in wanted)
    assert apart < 0.01 * sum(float((start[name] - wanted[name]).norm()) for name in wanted)


@pytest.mark.slow
def test_a_checkpoint_goes_from_one_device_to_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mid-training: two steps on the CPU, the third elsewhere."""
    config = toy_midtrain(
        steps=2,
        batch_tokens=300,
        source_share=0.0,
        micro_batch_tokens=150,
        optimizer=OptimizerConfig(name="muon", learning_rate=3e-4),
    )

    def run(root: Path, steps: int) -> dict[int, dict[str, float]]:
        sink = MemorySink()
        run_midtrain(
            policy_dir=BASE_POLICY, config=config.model_copy(update={"steps": steps}), seed=0, sink=sink,
            checkpoints=CheckpointStore(root, keep=1),
        )  # fmt: skip
        return sink.values

    run(tmp_path / "both", 2)
    with other_device() as device:
        monkeypatch.setattr(PLACES[1], lambda _: device)
        rest = run(tmp_path / "both", 3)
        monkeypatch.undo()
    run(tmp_path / "here", 2)
    wanted = run(tmp_path / "here", 3)
    assert rest.keys() == wanted.keys() == {3}
    for name in ("loss/train", "loss/heldout", "optim/grad_norm"):
        assert rest[3][name] == pytest.approx(wanted[3][name], rel=0.02), name


def test_packed_documents_are_told_apart_there() -> None:
    rows = [Example(list(range(1, 21)), [0.0] + [1.0] * 19, (0, 7, 12)), Example([3, 4, 5], [0.0, 1.0, 0.5])]
    losses = [
        SupervisedLearner(worlds.policy("qwen3"), optimizer=OptimizerConfig(learning_rate=3e-4), total_steps=1).loss(
            rows
        )
    ]
    with other_device() as device:
        model = worlds.policy("qwen3").to(device)
        for at_once in (0, 200):
            learner = SupervisedLearner(
                model, optimizer=OptimizerConfig(learning_rate=3e-4), total_steps=1, lm_head_chunk_size=at_once
            )
            losses.append(learner.loss(rows))
            assert learner.train(rows, step=1)["loss/train"] == pytest.approx(losses[0], rel=0.02)
            model = worlds.policy("qwen3").to(device)
    assert losses == pytest.approx([losses[0]] * 3, rel=0.02)


def test_what_was_left_behind_fails() -> None:
    """The double is strict: without this every test above would prove nothing."""
    with other_device() as device:
        there = torch.ones(3, device=device)
        assert (there * torch.tensor(2.0)).device == device
        with pytest.raises(RuntimeError, match="one of the CPU of shape"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="not supported"):
            there.numpy()
        model = worlds.policy("qwen3")
        model.lm_head.to(device)
        with pytest.raises(RuntimeError, match="one of the CPU of shape"):
            worlds.alone(model).train(worlds.groups(), step=1)


def test_the_device_is_chosen_or_missing_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_of(ParallelConfig()) == device_of(ParallelConfig(device="cpu")) == torch.device("cpu")
    with pytest.raises(StageError, match=r"parallel\.device=cuda .* this machine has 0"):
        device_of(ParallelConfig(device="cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device_of(ParallelConfig()) == torch.device("cuda", 0)
    assert device_of(ParallelConfig(device="cpu")) == torch.device("cpu")
    with pytest.raises(StageError, match=r"parallel\.world_size=2 needs a GPU for each rank, this machine has 1"):
        device_of(ParallelConfig(world_size=2, dp_shard=2), local=1)
