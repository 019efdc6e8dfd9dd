"""One text and one bound, whoever publishes: a stage in one process, ranks, a folder, an engine's own reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.trainer.stages.memory import BASE_POLICY, MemorySink, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import ParallelConfig
from trainer.distributed.parallel_dims import arrange
from trainer.distributed.rl import ShardedRL
from trainer.inference.contract import GenerateResponse
from trainer.inference.reference_logprobs import reference
from trainer.inference.verify_weights import WeightMismatch, judge, questions
from trainer.rl.backend import RLBackend, SingleProcess
from trainer.weights import WeightStore, open_versions
from trainer.weights.probe import BOUNDS, NATURAL, PROMPTS, STEP, Format, Probe, measure_model, published_probe
from trainer.weights.publish_checkpoint import publish_checkpoint


def published(root: Path, dtype: Format, backend_of: Callable[..., RLBackend]) -> Probe:
    """Version 0 of a stage."""
    store = WeightStore(root / "weights", dtype=dtype)
    config = small_config()
    config = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"published_dtype": dtype})})
    checkpoints = CheckpointStore(root / "checkpoints", keep=1)
    backend = backend_of(policy_dir=BASE_POLICY, config=config, seed=0, store=store, checkpoints=checkpoints)
    backend.publish(0, MemorySink(), lambda manifest, seconds: None)
    backend.wait()
    found = published_probe(store.versions, 0)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_publisher_asks_the_same_natural_text(tmp_path: Path, dtype: Format) -> None:
    one = published(tmp_path / "one", dtype, SingleProcess)
    text = policies.load_tokenizer(BASE_POLICY).decode(one.rows[-1].prompt_ids)
    assert len(one.rows[-1].prompt_ids) == PROMPTS * STEP and text in NATURAL
    where = str(tmp_path / "folder")
    publish_checkpoint(BASE_POLICY, where, dtype=dtype)
    of_folder = published_probe(open_versions(where), 0)
    probes = [one, of_folder]
    if dtype == "float32":  # that of the shipped policy's files
        probes.append(reference(None, 0, BASE_POLICY, None))
    for found in probes:
        assert found is not None
        assert (found.dtype, found.bound) == (dtype, BOUNDS[dtype])
        assert [row.prompt_ids for row in found.rows] == [row.prompt_ids for row in one.rows]


@pytest.mark.integration
def test_a_rank_asks_it_too(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        meshes = arrange(ParallelConfig(), torch.device("cpu"))
        ranks = published(tmp_path / "ranks", "float32", partial(ShardedRL, meshes))
    finally:
        torch.distributed.destroy_process_group()
    one = published(tmp_path / "one", "float32", SingleProcess)
    assert (ranks.dtype, ranks.bound) == ("float32", BOUNDS["float32"])
    assert [row.prompt_ids for row in ranks.rows] == [row.prompt_ids for row in one.rows]
    assert one.gap([(row.ids[0], row.logprobs[0]) for row in ranks.rows]) < 1e-3


def judged(probe: Probe, model: torch.nn.Module) -> float:
    """As an engine that computes with `model`."""
    asked = measure_model(model, tokenizer=policies.load_tokenizer(BASE_POLICY), dtype=probe.dtype)
    assert [list(q.prompt_ids) for q in questions(probe, "x")] == [row.prompt_ids for row in asked.rows]
    answers = [
        GenerateResponse(token_ids=row.ids[:1], logprobs=row.logprobs[:1], spans=[], finish_reason="length")
        for row in asked.rows
    ]
    return judge(probe, answers, deployment="x", version=0, where="it")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sound_weights_in_bf16_are_accepted_and_broken_ones_refused(tmp_path: Path, dtype: Format) -> None:
    probe = published(tmp_path, dtype, SingleProcess)
    engine = policies.load_model(BASE_POLICY).to(torch.bfloat16)
    assert 0 < judged(probe, engine) < probe.bound / 2
    for name, weight in engine.named_parameters():
        if name.endswith("down_proj.weight"):
            weight.data = weight.data.roll(1, 0)
    with pytest.raises(WeightMismatch, match=rf"\({probe.bound:g} are allowed\)"):
        judged(probe, engine)
