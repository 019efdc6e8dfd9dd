"""Mid-training: next-token prediction on a prepared corpus, or on the built-in mixture (source, correct modules, drills).

A corpus' documents are packed into rows, none of which lets a document see another. With `long_context_share` the last steps
train on longer rows, for which the rotary embedding is scaled once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from trainer import policy as policies
from trainer.checkpoint.store import Checkpoint, CheckpointStore
from trainer.config import MidtrainConfig
from trainer.errors import StageError
from trainer.learning.supervised import Example
from trainer.midtrain.corpus.readers import SourceUnreadable
from trainer.midtrain.corpus.store import documents
from trainer.midtrain.heldout import corpus_examples, held_out, is_held_out
from trainer.midtrain.initialization import random_model
from trainer.midtrain.mixture import mixed
from trainer.midtrain.packing import pack
from trainer.midtrain.synthetic import synthetic_examples
from trainer.policy import Policy
from trainer.policy.context import ContextNotExtensible, extend_context
from trainer.stages.base import StageResult, StageSink
from trainer.stages.supervised_loop import (
    HELD_OUT_EXAMPLES,
    Alone,
    Later,
    LoadPolicy,
    TraineeOf,
    latest_policy,
    run_supervised,
)

STAGE = "midtrain"
HELD_OUT_SEED = 1_000_003
"""Held-out text is drawn under another seed than any run's."""


def run_midtrain(
    *,
    policy_dir: Path,
    config: MidtrainConfig,
    seed: int,
    sink: StageSink,
    checkpoints: CheckpointStore,
    corpora: Path | None = None,
    codebase: Path | None = None,
    trainee_of: TraineeOf = Alone,
    load: LoadPolicy = policies.load,
) -> StageResult:
    """Run or resume the stage. With `init="scratch"` the weights of `policy_dir` are replaced by random ones.

    `corpora` is where configured corpora lie, `codebase` where the configured codebase lies, unless among them. Raises
    StageError naming the one that cannot be read.
    """
    scratch = config.init == "scratch"  # needs all weights in memory: they are drawn there
    policy, resumed = latest_policy(
        checkpoints,
        STAGE,
        policy_dir,
        seed=seed,
        whole=config.parallel.world_size == 1,
        load=policies.load if scratch else load,
    )
    if resumed is None and scratch:
        model = policy.model
        model.load_state_dict(random_model(type(model), model.config, seed=seed).state_dict())
    if config.corpora or config.codebase:
        if corpora is None:
            raise StageError("this installation has no folder of corpora; see docs/design/policy.md on mid-training")
        try:
            return _on_corpus(
                policy,
                config,
                seed,
                corpora,
                codebase or (corpora / config.codebase if config.codebase else None),
                resumed=resumed,
                sink=sink,
                checkpoints=checkpoints,
                trainee_of=trainee_of,
            )
        except (SourceUnreadable, ContextNotExtensible) as error:
            raise StageError(str(error)) from error

    def examples(data_seed: int) -> Iterator[Example]:
        return synthetic_examples(
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
        trainee_of=trainee_of,
    )


def _on_corpus(
    policy: Policy,
    config: MidtrainConfig,
    seed: int,
    corpora: Path,
    codebase: Path | None,
    *,
    resumed: Checkpoint | None,
    sink: StageSink,
    checkpoints: CheckpointStore,
    trainee_of: TraineeOf,
) -> StageResult:
    """Rows of a corpus' documents, or the built-in mixture with a codebase beside it that is only measured."""
    known = {name: documents(corpora / name) for name in config.corpora}
    kept = {name: [d for d in found if not is_held_out(d)] for name, found in known.items()}
    unseen = [d for found in known.values() for d in found if is_held_out(d)]
    if empty := [name for name, found in kept.items() if not found]:
        raise StageError(f"corpus {empty[0]!r} has no document to train on; prepare it from more sources")
    measured = held_out(
        policy.tokenizer, unseen, length=config.seq_len, max_tokens=config.held_out_tokens, codebase=codebase
    )

    def rows(length: int, data_seed: int) -> Iterator[Example]:
        if not kept:
            return synthetic_examples(
                policy.tokenizer, seed=data_seed, drill_share=config.drill_share, source_share=config.source_share
            )
        texts = [
            (corpus_examples(policy.tokenizer, found, _order(len(found), data_seed)), config.corpora[name])
            for name, found in kept.items()
        ]
        return pack(texts[0][0] if len(texts) == 1 else mixed(texts), length=length, seed=data_seed)

    later = Later(
        after=config.short_steps,
        begin=lambda: extend_context(policy.model, tokens=config.long_context_seq_len, kind=config.rope),
        examples=rows(config.long_context_seq_len, seed + 1),
    )
    return run_supervised(
        stage=STAGE,
        policy=policy,
        resumed=resumed,
        config=config,
        seed=seed,
        examples=rows(config.seq_len, seed),
        held_out=measured,
        sink=sink,
        checkpoints=checkpoints,
        later=later if config.long_context_share else None,
        trainee_of=trainee_of,
    )


def corpus_rows(policy: Policy, corpus: Path, *, length: int, seed: int) -> Iterator[Example]:
    """Packed rows of a corpus without what it holds out. Raises SourceUnreadable."""
    kept = [document for document in documents(corpus) if not is_held_out(document)]
    if not kept:
        raise SourceUnreadable(f"corpus {corpus.name!r} has no document to train on; prepare it from more sources")
    return pack(corpus_examples(policy.tokenizer, kept, _order(len(kept), seed)), length=length, seed=seed)


def _order(count: int, seed: int) -> Iterator[int]:
    """Every document once per pass, in a new seeded order each pass."""
    rng = random.Random(f"corpus:{seed}")
    while True:
        yield from rng.sample(range(count), count)
