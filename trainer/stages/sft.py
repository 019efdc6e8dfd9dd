"""Supervised fine-tuning on expert episodes that ran in real sandboxes: on what the assistant says, token for token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer.config import SFTConfig
from trainer.stages.base import StageError, StageResult, StageSink
from trainer.stages.checkpoint import CheckpointStore
from trainer.stages.data import ExpertEpisode, midtrain_examples, sft_examples, tokenize_episode, with_replay
from trainer.stages.supervised_loop import HELD_OUT_EXAMPLES, Alone, TraineeOf, latest_policy, run_supervised
from trainer.stages.templates import TemplateNotExact, check_all

STAGE = "sft"
REPLAY_SEED = 77
REPLAY_DRILLS, REPLAY_SOURCE = 0.15, 0.05
"""Shares of the replayed mixture: those that the shipped base policy was mid-trained with."""


def run_sft(
    *,
    policy_dir: Path,
    config: SFTConfig,
    seed: int,
    episodes: Sequence[ExpertEpisode],
    sink: StageSink,
    checkpoints: CheckpointStore,
    trainee_of: TraineeOf = Alone,
) -> StageResult:
    """Run or resume the stage. The last few episodes are held out and only measured.

    Raises StageError: too few episodes, or a chat template that is not token-exact.
    """
    held = min(HELD_OUT_EXAMPLES, len(episodes) // 10)
    if held == 0:
        raise StageError(f"SFT needs at least 10 expert episodes, {len(episodes)} were recorded; raise `episodes`")
    policy, resumed = latest_policy(checkpoints, STAGE, policy_dir, whole=config.parallel.ranks == 1)
    try:
        check_all(policy.renderer, episodes)
    except TemplateNotExact as error:
        raise StageError(str(error)) from error
    weight = config.observation_weight
    examples = sft_examples(policy.renderer, episodes[:-held], seed=seed, observation_weight=weight)
    if config.replay_share:
        replay = midtrain_examples(
            policy.tokenizer, seed=seed + REPLAY_SEED, drill_share=REPLAY_DRILLS, source_share=REPLAY_SOURCE
        )
        examples = with_replay(examples, replay, share=config.replay_share, seed=seed)
    return run_supervised(
        stage=STAGE,
        policy=policy,
        resumed=resumed,
        config=config,
        seed=seed,
        examples=examples,
        held_out=[
            tokenize_episode(policy.renderer, episode, observation_weight=weight) for episode in episodes[-held:]
        ],
        sink=sink,
        checkpoints=checkpoints,
        trainee_of=trainee_of,
    )
