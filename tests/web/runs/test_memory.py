"""What the estimate of a rank's memory takes a pass to be, and what a real pass keeps."""

from __future__ import annotations

import pytest
import torch

from composer_web.runs.launch import memory
from tests.trainer.learning.models import tiny_model
from trainer.config import (
    MidtrainConfig,
    ParallelConfig,
    RLConfig,
    RunConfig,
    SFTConfig,
)
from trainer.defaults import Shape
from trainer.learning.supervised import Example, cut, weighted_loss
from trainer.toy.preset import toy_midtrain, toy_rl, toy_sampling, toy_sft


@pytest.mark.parametrize(
    ("stage", "tokens"),
    [
        (toy_midtrain(batch_tokens=4096), 4096),
        (toy_midtrain(batch_tokens=4096, micro_batch_tokens=1024), 1024),
        (toy_midtrain(batch_tokens=4096, micro_batch_tokens=256, seq_len=512), 512),
        (toy_midtrain(batch_tokens=512, micro_batch_tokens=1024), 512),
        (toy_sft(batch_tokens=9000, micro_batch_tokens=1024, dataset="own", max_tokens=2048), 2048),
        (toy_sft(batch_tokens=9000, micro_batch_tokens=1024), 1024),
        (toy_sft(batch_tokens=4096, parallel=ParallelConfig(world_size=2, dp_shard=2)), 2048),
        (
            toy_sft(batch_tokens=4096, parallel=ParallelConfig(world_size=4, dp_shard=4, max_nodes=4, min_nodes=1)),
            4096,
        ),
        (toy_rl(micro_batch_tokens=512, sampling=toy_sampling(max_context_tokens=768)), 768),
        (toy_rl(micro_batch_tokens=4096, sampling=toy_sampling(max_context_tokens=768)), 4096),
    ],
)
def test_a_pass_has_at_most_these_tokens(stage: MidtrainConfig | SFTConfig | RLConfig, tokens: int) -> None:
    assert memory.pass_tokens(stage) == tokens


def test_a_rank_holds_what_it_holds_with_the_fewest_machines() -> None:
    def state(**sizes: int) -> memory.Part:
        stage = toy_sft(parallel=ParallelConfig(world_size=8, max_nodes=4, **sizes))
        return memory.state_bytes(RunConfig(name="x", stage=stage), 1000)

    assert state(shards=8).bytes == 4 * 1000 * memory.FLOAT32 / 8
    one = state(shards=8, min_nodes=1)
    assert one.bytes == 4 * 1000 * memory.FLOAT32 / 2 and one.how.endswith("cut over 2 ranks, with 1 of 4 machines")
    replicated = state(shards=2, replicas=4, min_nodes=1)
    assert replicated.bytes == one.bytes == state(shards=2, replicas=4).bytes, "shards stay, replicas go"


@pytest.mark.parametrize("most", [0, 64])
def test_what_a_pass_keeps_is_measured_and_no_more_than_estimated(most: int) -> None:
    """Bytes that a real forward pass saves for its backward pass: at most the estimate, and not far below it."""
    model = tiny_model()
    shape = model.config
    rows = [Example(ids=[1 + i % 30 for i in range(64)], weights=[1.0] * 64) for _ in range(4)]
    stage = toy_sft(batch_tokens=256, micro_batch_tokens=most)
    stage = stage.model_copy(update={"parallel": ParallelConfig(precision="float32")})
    of = Shape(
        shape.hidden_size, shape.num_hidden_layers, shape.num_attention_heads * shape.head_dim,
        shape.num_key_value_heads * shape.head_dim, shape.intermediate_size, shape.vocab_size,
    )  # fmt: skip
    told = sum(part.bytes for part in memory.activation_bytes(RunConfig(name="x", stage=stage), of))
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    measured = []
    for part in cut(rows, most):
        kept: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: torch.Tensor, kept: dict[int, torch.UntypedStorage] = kept) -> torch.Tensor:
            kept.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss, _ = weighted_loss(model, part, total=256.0, precision="float32")
        loss.backward()
        measured.append(sum(storage.nbytes() for place, storage in kept.items() if place not in weights))
    assert len(measured) == (4 if most else 1)
    assert told / 4 <= max(measured) <= told, (told, measured)
