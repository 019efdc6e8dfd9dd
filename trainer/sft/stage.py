"""Supervised fine-tuning on assistant tokens, from a dataset's conversations or from expert episodes.

Expert episodes ran in real sandboxes. A dataset is prepared by a user from conversations, trajectories and rollouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import SFTConfig
from trainer.errors import StageError
from trainer.learning.supervised import Example
from trainer.midtrain.corpus.readers import SourceUnreadable
from trainer.midtrain.heldout import held_out
from trainer.midtrain.stage import corpus_rows
from trainer.midtrain.synthetic import BASE_DRILLS, BASE_SOURCE, synthetic_examples
from trainer.policy import Policy
from trainer.policy.round_trip import TemplateNotExact
from trainer.sft.conversations.store import conversations, provenance
from trainer.sft.conversations.streams import Streams, endless, streams
from trainer.sft.expert_episodes import ExpertEpisode, sft_examples, tokenize_episode, with_replay
from trainer.sft.templates import check_all
from trainer.stages.base import StageResult, StageSink
from trainer.stages.held_out import HeldOut
from trainer.stages.supervised_loop import (
    HELD_OUT_EXAMPLES,
    Alone,
    LoadPolicy,
    TraineeOf,
    latest_policy,
    run_supervised,
)

STAGE = "sft"
REPLAY_SEED = 77
ROW_TOKENS = 512
"""Length of the rows of a replayed corpus, and of the codebase that is measured."""


@dataclass(frozen=True, slots=True)
class Data:
    examples: Iterator[Example]
    held_out: list[Example]


def run_sft(
    *,
    policy_dir: Path,
    config: SFTConfig,
    seed: int,
    sink: StageSink,
    checkpoints: CheckpointStore,
    episodes: Sequence[ExpertEpisode] = (),
    dataset: Path | None = None,
    corpora: Path | None = None,
    codebase: Path | None = None,
    trainee_of: TraineeOf = Alone,
    load: LoadPolicy = policies.load,
) -> StageResult:
    """Run or resume the stage on `dataset`, else on `episodes`. A few are held out for evaluation.

    `corpora` is the folder of a replayed corpus, `codebase` where the codebase that is measured lies, unless in that folder.
    Raises StageError: too little data, or a chat template that is not token-exact.
    """
    policy, resumed = latest_policy(
        checkpoints, STAGE, policy_dir, seed=seed, whole=config.parallel.world_size == 1, load=load
    )
    try:
        if dataset is not None:
            data = _of_dataset(policy, config, seed, dataset, sink)
        else:
            data = _of_episodes(policy, config, seed, episodes)
        examples = data.examples
        if config.replay_share:
            replay = _replayed(policy, config, seed + REPLAY_SEED, corpora)
            examples = with_replay(examples, replay, share=config.replay_share, seed=seed)
        measured = _codebase(policy, config, corpora, codebase)
    except (TemplateNotExact, SourceUnreadable) as error:
        raise StageError(str(error)) from error
    return run_supervised(
        stage=STAGE,
        policy=policy,
        resumed=resumed,
        config=config,
        seed=seed,
        examples=examples,
        held_out=data.held_out,
        measured=measured,
        sink=sink,
        checkpoints=checkpoints,
        trainee_of=trainee_of,
    )


def _of_episodes(policy: Policy, config: SFTConfig, seed: int, episodes: Sequence[ExpertEpisode]) -> Data:
    """Hold out the last few. Raises StageError, TemplateNotExact."""
    held = min(HELD_OUT_EXAMPLES, len(episodes) // 10)
    if held == 0:
        raise StageError(f"SFT needs at least 10 expert episodes, {len(episodes)} were recorded; raise `episodes`")
    check_all(policy.renderer, episodes)
    weight = config.observation_weight
    return Data(
        sft_examples(policy.renderer, episodes[:-held], seed=seed, observation_weight=weight),
        [tokenize_episode(policy.renderer, episode, observation_weight=weight) for episode in episodes[-held:]],
    )


def _of_dataset(policy: Policy, config: SFTConfig, seed: int, dataset: Path, sink: StageSink) -> Data:
    """Usable data of the dataset. The run's log lists its composition and what was left out.

    Raises StageError, TemplateNotExact, SourceUnreadable.
    """
    made = provenance(dataset)
    found = streams(policy, conversations(dataset), max_tokens=config.max_tokens, max_held_out=HELD_OUT_EXAMPLES)
    _tell(sink, config, made.digest, found, facts=made.model_dump(mode="json"))
    if not found.train or not found.held_out:
        raise StageError(
            f"{found.kept} conversations of dataset {config.dataset!r} can be trained on"
            f"{f' ({_words(found)})' if found.dropped else ''}: too few to hold some out; "
            "raise max_tokens, or prepare a larger one"
        )
    return Data(
        endless(found.train, seed=seed, observation_weight=config.observation_weight),
        [tokens.example(config.observation_weight) for tokens in found.held_out],
    )


def _tell(sink: StageSink, config: SFTConfig, digest: str, found: Streams, *, facts: dict[str, object]) -> None:
    left = f"; left out: {_words(found)}" if found.dropped else ""
    sink.event(
        "warning" if found.dropped else "info",
        f"dataset {config.dataset} ({digest[:12]}): {found.kept} conversations, {found.learned_tokens} tokens learned, "
        f"{found.as_sampled} as they were sampled{left}",
        {
            "dataset": config.dataset,
            "provenance": facts,
            "kept": found.kept,
            "held_out": len(found.held_out),
            "learned_tokens": found.learned_tokens,
            "as_sampled": found.as_sampled,
            "dropped": dict(found.dropped),
            "examples": found.examples,
        },
    )


def _words(found: Streams) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in found.dropped.most_common())


def _codebase(policy: Policy, config: SFTConfig, corpora: Path | None, place: Path | None) -> HeldOut:
    """Rows of the configured codebase, as mid-training measures it; none without one. Raises StageError, SourceUnreadable."""
    if not config.codebase:
        return HeldOut()
    return held_out(
        policy.tokenizer,
        (),
        length=ROW_TOKENS,
        max_tokens=config.held_out_tokens,
        codebase=place or _folder(corpora) / config.codebase,
    )


def _folder(corpora: Path | None) -> Path:
    """Raises StageError."""
    if corpora is None:
        raise StageError("this installation has no folder of corpora; see docs/design/policy.md on mid-training")
    return corpora


def _replayed(policy: Policy, config: SFTConfig, seed: int, corpora: Path | None) -> Iterator[Example]:
    """Replay the configured corpus, else the mid-training mixture of the shipped base policy.

    Raises StageError, SourceUnreadable.
    """
    if not config.replay_corpus:
        return synthetic_examples(policy.tokenizer, seed=seed, drill_share=BASE_DRILLS, source_share=BASE_SOURCE)
    return corpus_rows(policy, _folder(corpora) / config.replay_corpus, length=ROW_TOKENS, seed=seed)
