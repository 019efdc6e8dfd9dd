"""A run goes on from its own checkpoints alone: whole ones of other runs are refused, and what differs is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainer.stages.memory import (
    BASE_POLICY,
    ListSource,
    MemorySink,
    foreign_policy,
    make_group,
    small_config,
)
from tests.trainer.stages.test_supervised import COMMON, episodes
from trainer import policy as policies
from trainer.checkpoint.resume import resumable
from trainer.checkpoint.store import CheckpointError, CheckpointState, CheckpointStore
from trainer.config import LoraConfig
from trainer.midtrain.stage import run_midtrain
from trainer.policy.context import extend_context
from trainer.rl.stage import run_rl
from trainer.sft.stage import run_sft
from trainer.toy.preset import toy_midtrain, toy_sft
from trainer.weights import WeightStore


def rl(root: Path, policy_dir: Path, *, rank: int = 0) -> None:
    model = policies.load_model(policy_dir)
    run_rl(
        policy_dir=policy_dir,
        config=small_config(steps=2, lora=LoraConfig(rank=rank)),
        seed=0,
        source=ListSource([make_group(model, index) for index in range(4)], 2),
        sink=MemorySink(),
        store=WeightStore(root / "weights", dtype="float32"),
        checkpoints=CheckpointStore(root / "checkpoints", keep=1),
    )


def adapters(root: Path, policy_dir: Path) -> None:
    rl(root, policy_dir, rank=2)


def sft(root: Path, policy_dir: Path) -> None:
    run_sft(
        policy_dir=policy_dir,
        config=toy_sft(**(COMMON | {"steps": 2})),
        seed=0,
        episodes=episodes(20),
        sink=MemorySink(),
        checkpoints=CheckpointStore(root / "checkpoints", keep=1),
    )


def midtrain(root: Path, policy_dir: Path) -> None:
    run_midtrain(
        policy_dir=policy_dir,
        config=toy_midtrain(source_share=0.0, **(COMMON | {"steps": 2})),
        seed=0,
        sink=MemorySink(),
        checkpoints=CheckpointStore(root / "checkpoints", keep=1),
    )


@pytest.mark.slow
@pytest.mark.parametrize("stage", [rl, adapters, sft, midtrain], ids=lambda stage: stage.__name__)
def test_a_checkpoint_of_another_policys_run_is_refused(stage: Callable[[Path, Path], None], tmp_path: Path) -> None:
    stage(tmp_path, foreign_policy(tmp_path / "narrow", hidden_size=64))
    folder = tmp_path / "checkpoints" / "step-000002"
    wrong = r"model\.embed_tokens\.weight \[1024, 64\] instead of \[1024, 128\]; .* and \d+ more differences; remove this folder"
    with pytest.raises(CheckpointError, match=rf"{folder} is of another run.*{BASE_POLICY}: {wrong}"):
        stage(tmp_path, BASE_POLICY)
    folder.rename(tmp_path / "aside")
    stage(tmp_path, BASE_POLICY)  # the remedy
    assert resumable_there(tmp_path / "checkpoints", stage.__name__) == 2


def resumable_there(root: Path, stage: str, *, seed: int = 0) -> int:
    name = {"adapters": "rl"}.get(stage, stage)
    found = resumable(CheckpointStore(root, keep=1), stage=name, policy_dir=BASE_POLICY, seed=seed)
    assert found is not None
    return found.state.step


def saved(root: Path, policy: policies.Policy, optimizer: dict[str, torch.Tensor] | None = None) -> None:
    state = CheckpointState(stage="rl", step=1, version=1, seed=7)
    CheckpointStore(root, keep=1).save(policy, optimizer or {"a|step": torch.tensor(1.0)}, state)


def test_each_difference_is_named(tmp_path: Path) -> None:
    base = policies.load(BASE_POLICY)
    config = {name: getattr(base.model.config, name) for name in ("vocab_size", "hidden_size", "head_dim")}
    llama = LlamaForCausalLM(LlamaConfig(**config, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1))
    base.tokenizer.add_tokens(["<|new|>"])
    kinds = {
        "architecture llama instead of qwen3": policies.load(foreign_policy(tmp_path / "llama", llama)),
        # The same shapes: two heads of 64 are four of 32.
        r"num_attention_heads 4 instead of 2; .*head_dim 32 instead of 64": policies.load(
            foreign_policy(tmp_path / "heads", num_attention_heads=4, num_key_value_heads=2, head_dim=32)
        ),
        r"vocabulary \w+ of 1025 tokens instead of \w+ of 1024 tokens": base,
    }
    for number, (words, policy) in enumerate(kinds.items()):
        saved(tmp_path / str(number), policy)
        with pytest.raises(CheckpointError, match=words):
            resumable_there(tmp_path / str(number), "rl", seed=7)


def test_another_seed_is_refused_and_a_longer_context_is_not(tmp_path: Path) -> None:
    policy = policies.load(BASE_POLICY)
    extend_context(policy.model, tokens=2048, kind="yarn")
    saved(tmp_path, policy)
    assert resumable_there(tmp_path, "rl", seed=7) == 1
    with pytest.raises(CheckpointError, match=r"seed 7 instead of 0; remove this folder"):
        resumable_there(tmp_path, "rl")


def test_an_optimizer_of_something_else_is_a_checkpoint_that_does_not_fit(tmp_path: Path) -> None:
    state = CheckpointState(stage="rl", step=2, version=2, seed=0)
    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    store.save(policies.load(BASE_POLICY), {"nobody|exp_avg": torch.ones(2)}, state)
    with pytest.raises(CheckpointError, match=r"'nobody', which this policy does not have.*remove this folder"):
        rl(tmp_path, BASE_POLICY)
