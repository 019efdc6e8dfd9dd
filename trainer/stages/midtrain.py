"""Mid-training: next-token prediction on Python source, correct modules and copying drills."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from trainer.config import MidtrainConfig
from trainer.learning.supervised import Example
from trainer.policy.build import build_tiny_model
from trainer.stages.base import StageResult, StageSink
from trainer.stages.checkpoint import CheckpointStore
from trainer.stages.data import midtrain_examples
from trainer.stages.supervised_loop import HELD_OUT_EXAMPLES, latest_policy, run_supervised

STAGE = "midtrain"
HELD_OUT_SEED = 1_000_003
"""Held-out text is drawn under another seed than any run's."""


def run_midtrain(
    *, policy_dir: Path, config: MidtrainConfig, seed: int, sink: StageSink, checkpoints: CheckpointStore
) -> StageResult:
    """Run or resume the stage. With `init="scratch"` only the tokenizer and template of `policy_dir` are used."""
    policy, resumed = latest_policy(checkpoints, STAGE, policy_dir)
    if resumed is None and config.init == "scratch":
        policy.model.load_state_dict(build_tiny_model(policy.tokenizer, seed).state_dict())

    def examples(data_seed: int) -> Iterator[Example]:
        return midtrain_examples(
            policy.tokenizer, seed=data_seed, drill_share=config.drill_share, source_share=config.source_share
        )

    return run_supervised(
        stage=STAGE,
        policy=policy,
        resumed=resumed,
        config=config,
        seed=seed,
        examples=examples(seed),
        held_out=list(islice(examples(HELD_OUT_SEED), HELD_OUT_EXAMPLES)),
        sink=sink,
        checkpoints=checkpoints,
    )
