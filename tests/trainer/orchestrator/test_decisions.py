"""Concurrency, breaker, reasons and checks: small decisions, each by its rule."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from sandbox.grading.verdict.outcomes import OUTCOMES, Cause, Fault, Verdict, is_ours
from tests.trainer.router_replay import moe
from tests.trainer.stages.memory import BASE_POLICY
from trainer.inference.contract import GenerateResponse, VersionSpan
from trainer.orchestrator.circuit_breaker import breaker_open
from trainer.orchestrator.concurrency import EngineLoad, next_limit
from trainer.orchestrator.validation import GroupRefused, GroupStale, InvalidEngineResponse, check_group, token_versions
from trainer.routed_experts import RoutedExperts
from trainer.router_replay.families import routers
from trainer.router_replay.validate import FAMILIES as REPLAYED
from trainer.router_replay.validate import PolicyShape, shape_of
from trainer.types import HintedTurn, TrainGroup, TrainSample

LIMITS = {"least": 4, "most": 32, "group_size": 8}


@given(st.integers(1, 64), st.integers(0, 500), st.integers(0, 500), st.integers(0, 256))
def test_the_limit_stays_between_a_step_and_the_most(current, running, waiting, slots):
    after = next_limit(current, EngineLoad(running, waiting, slots), **LIMITS)
    assert 4 <= after <= 32


def test_a_queue_lowers_the_limit_and_free_slots_raise_it():
    assert next_limit(16, EngineLoad(64, 16, 64), **LIMITS) == 15
    assert next_limit(16, EngineLoad(64, 500, 64), **LIMITS) == 12  # at most a quarter
    assert next_limit(16, EngineLoad(40, 0, 64), **LIMITS) == 18
    assert next_limit(16, EngineLoad(64, 0, 64), **LIMITS) == 16  # full and without a queue: just right
    assert next_limit(4, EngineLoad(1, 0, 0), **LIMITS) == 5  # an engine that names no slots


def test_the_limit_settles_where_the_engine_is_full():
    limit, seen = 32, []
    for _ in range(40):
        wanted = limit * 8
        limit = next_limit(limit, EngineLoad(min(wanted, 96), max(0, wanted - 96), 96), **LIMITS)
        seen.append(limit)
    assert min(seen[10:]) >= 10 and max(seen[10:]) <= 14


def test_the_breaker_trips_in_a_row_or_by_share():
    assert breaker_open([False] * 4, in_a_row=5) is None
    assert "last 5 groups" in str(breaker_open([False] * 5 + [True], in_a_row=5))
    assert breaker_open([True, *[False] * 4] * 1, in_a_row=5) is None
    assert "8 of the last 12" in str(breaker_open([True, False, False] * 4, in_a_row=5))
    assert breaker_open([False] * 50, in_a_row=0) is None


def test_faults_of_the_installation_are_told_from_those_of_tasks_and_people():
    ours = {
        "sandbox_lost",
        "engine_failed",
        "invalid_engine_response",
        "group_deadline",
        "reward_failed",
        "store_failed",
        "worker_lost",
    }
    assert all(is_ours(outcome) for outcome in ours)
    assert not any(is_ours(outcome) for outcome in ("quarantined", "task_invalid", "cancelled", "snapshot_missing"))
    assert is_ours("") and is_ours("a cause of a later version")
    lost = [cause for cause, outcome in OUTCOMES.items() if outcome.verdict is Verdict.INFRA_ERROR]
    assert all(OUTCOMES[cause].fault is not Fault.POLICY for cause in lost if cause is not Cause.QUARANTINED)
    assert all(OUTCOMES[cause].fault is Fault.POLICY for cause in Cause if cause not in lost)


def response(*spans, tokens=4, logprobs=None):
    return GenerateResponse(
        token_ids=[7] * tokens,
        logprobs=[-0.5] * tokens if logprobs is None else logprobs,
        spans=[VersionSpan(version=v, start=a, end=b) for v, a, b in spans],
        finish_reason="stop",
    )


def test_every_token_has_its_version():
    assert token_versions(response((3, 0, 1), (5, 1, 4))) == [3, 5, 5, 5]
    assert token_versions(response(tokens=0)) == []


@pytest.mark.parametrize(
    "lie",
    [
        response((3, 0, 3)),  # a token of no version
        response((3, 0, 5)),  # more tokens than there are
        response((3, 0, 2), (3, 3, 4)),  # a gap
        response((3, 0, 3), (4, 2, 4)),  # an overlap
        response((4, 0, 2), (3, 2, 4)),  # weights that go back
        response((-1, 0, 4)),
        response((3, 0, 4), logprobs=[-0.5] * 3),
        response((3, 0, 4), logprobs=[-0.5, float("nan"), -0.5, -0.5]),
        response((3, 0, 4), logprobs=[-0.5, 0.5, -0.5, -0.5]),
    ],
)
def test_an_answer_that_contradicts_itself_is_refused(lie):
    with pytest.raises(InvalidEngineResponse, match="the engine"):
        token_versions(lie)


def group(**changes):
    sample = TrainSample(tokens=[1, 2], loss_mask=[0, 1], sampler_logprobs=[0.0, -0.5], advantages=[0.0, 1.0])
    values = {
        "group_id": "g",
        "prompt_index": 0,
        "dispatched_version": 1,
        "oldest_version": 1,
        "newest_version": 2,
        "rewards": [1.0, 0.0],
        "samples": [sample, sample],
    }
    return TrainGroup(**(values | changes))


DENSE = PolicyShape(vocabulary=100, experts=(), top_k=0)
MIXED = PolicyShape(vocabulary=100, experts=(4, 4), top_k=2)


def routed(*rows):
    """Experts of two layers for the first positions."""
    return RoutedExperts.pack(np.array(rows, np.uint16))


def with_experts(experts, **changes):
    sample = group().samples[0].model_copy(update={"experts": experts} | changes)
    return group(samples=[group().samples[0], sample])


@pytest.mark.parametrize(
    ("experts", "shape", "why"),
    [
        (
            routed([[0, 4], [1, 2]]),
            MIXED,
            "sample 1: expert 4 of layer 0 at position 0 does not exist: the policy has 4",
        ),
        (routed([[0, 1], [2, 2]]), MIXED, "layer 1 name one expert twice"),
        (routed([[0, 1], [2, 0xFFFF]]), MIXED, "layer 1 are incomplete"),
        (routed([[0, 1]]), MIXED, "of 1 layers with 2 experts a token, the policy has 2 with 2"),
        (routed([[0, 1, 2], [0, 1, 2]]), MIXED, "of 2 layers with 3 experts a token"),
        (routed([[0, 1], [2, 3]]), DENSE, "the policy has 0 with 0"),
        (routed([[0, 1], [2, 3]], [[0, 1], [2, 3]]), MIXED, "reach position 2 of 2 tokens"),
    ],
)
def test_experts_that_the_policy_has_not_are_refused_by_name(experts, shape, why):
    with pytest.raises(InvalidEngineResponse, match=why):
        check_group(with_experts(experts), published=2, shape=shape)


def test_experts_of_the_policy_are_taken():
    check_group(with_experts(routed([[0, 3], [1, 2]])), published=2, shape=MIXED)
    check_group(with_experts(routed([[0xFFFF, 0xFFFF], [1, 2]])), published=2, shape=MIXED)


@pytest.mark.parametrize("token", [100, -1])
def test_tokens_that_the_policy_has_not_are_refused_by_name(token):
    with pytest.raises(
        InvalidEngineResponse, match=f"sample 1: token {token} at position 1 does not exist: the policy has 100"
    ):
        check_group(with_experts(None, tokens=[1, token]), published=2, shape=DENSE)
    with pytest.raises(InvalidEngineResponse, match=r"streams have \[2, 3\] entries"):
        check_group(with_experts(None, loss_mask=[0, 1, 1]), published=2, shape=DENSE)
    hint = HintedTurn(rule="r", tokens=[1, 2], hinted_tokens=[1, token, 2], turn_tokens=1)
    with pytest.raises(InvalidEngineResponse, match="a hint of r: token"):
        check_group(group(hints=[hint]), published=2, shape=DENSE)


def test_the_shape_of_a_policy_is_read_without_its_weights(tmp_path):
    for name in moe.FAMILIES:
        model = moe.make(name)
        model.config.save_pretrained(tmp_path / name)
        found = shape_of(tmp_path / name)
        assert found == PolicyShape(moe.VOCAB, tuple(router.experts for router in routers(model)), moe.TOP_K), name
        assert set(found.experts) == {moe.EXPERTS}
    dense = shape_of(BASE_POLICY)
    assert (dense.vocabulary, dense.experts) == (1024, ())
    shutil.copyfile(BASE_POLICY / "config.json", tmp_path / name / "config.json")
    assert shape_of(tmp_path / name) == dense, "a folder that was overwritten is read again"


@pytest.mark.parametrize("model_type", sorted(REPLAYED))
def test_the_layers_with_experts_are_those_of_the_library(tmp_path, model_type):
    """The worker reads `config.json`, and the trainer asks the model: both must name the same layers and experts."""
    config = AutoConfig.for_model(model_type, vocab_size=97, hidden_size=32, num_hidden_layers=4, num_attention_heads=4)
    if hasattr(config, "first_k_dense_replace"):
        config.first_k_dense_replace = 2
    if hasattr(config, "decoder_sparse_step"):
        config.decoder_sparse_step, config.mlp_only_layers = 2, [1]
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    found = routers(model)
    assert shape_of(tmp_path) == PolicyShape(97, tuple(router.experts for router in found), found[0].top_k)


def test_a_version_that_was_never_published_is_refused():
    check_group(group(), published=2, shape=DENSE)
    with pytest.raises(InvalidEngineResponse, match="names policy version 2 and the newest that was published is 1"):
        check_group(group(), published=1, shape=DENSE)


def test_a_group_is_as_stale_as_its_oldest_token():
    """Whatever it was dispatched at: an engine may lag behind what is published."""
    lagging = group(dispatched_version=9, oldest_version=0, newest_version=9)
    with pytest.raises(GroupStale, match=r"oldest tokens are of policy version 0, 9 is published, .* lag 1 at most"):
        check_group(lagging, published=9, shape=DENSE, staleness_limit=1)
    check_group(lagging.model_copy(update={"oldest_version": 8}), published=9, shape=DENSE, staleness_limit=1)
    check_group(group(oldest_version=-1), published=9, shape=DENSE, staleness_limit=0)  # nothing was sampled


def test_numbers_that_are_not_finite_are_refused():
    bad = TrainSample(tokens=[1, 2], loss_mask=[0, 1], sampler_logprobs=[0.0, float("nan")], advantages=[0.0, 1.0])
    with pytest.raises(GroupRefused, match="sample 1: sampler_logprobs holds NaN"):
        check_group(group(samples=[group().samples[0], bad]), published=2, shape=DENSE)
    with pytest.raises(GroupRefused, match="a reward is not finite"):
        check_group(group(rewards=[float("inf"), 0.0]), published=2, shape=DENSE)
