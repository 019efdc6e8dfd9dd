"""The trainer repeats what the sampler chose: experts, and the tokens that were open to it."""

from __future__ import annotations

import math

import pytest
import torch

from tests.trainer.router_replay import moe
from trainer.config import CorrectionConfig, ObjectiveConfig, OptimizerConfig
from trainer.learning.importance_sampling import build_correction
from trainer.learning.loss import score_tokens
from trainer.learning.metrics import describe
from trainer.learning.mismatch import mismatch
from trainer.learning.packing import pack
from trainer.learning.step import Learner
from trainer.routed_experts import ReplayRefused, RoutedExperts, SamplingMasks
from trainer.router_replay.hooks import Recorder, Replay
from trainer.types import TrainGroup, TrainSample

PROMPT, LENGTH = 4, 24
TEMPERATURE = 0.7


def sample(model, seed: int, *, advantage: float = 1.0, top: int = 0, noise: float = 0.0) -> TrainSample:
    """Random tokens as a sampler with noisy routers would record them; `top`: only so many tokens were open."""
    recorder = Recorder(model)
    generator = torch.Generator().manual_seed(seed)
    handles = [
        router.module.register_forward_pre_hook(
            lambda module, args: (args[0] + noise * torch.randn(args[0].shape, generator=generator),)
        )
        for router in recorder.routers
    ]
    ids = moe.tokens(1, LENGTH, seed=seed)
    with torch.no_grad():
        logits = model(ids).logits[0] / TEMPERATURE
    for handle in handles:
        handle.remove()
    open_ids: list[list[int]] = [[]] * PROMPT
    logprobs = [0.0] * PROMPT
    for t in range(PROMPT, LENGTH):
        row = logits[t - 1]
        if top:
            kept = sorted({*row.topk(top).indices.tolist(), int(ids[0, t])})
            row = torch.full_like(row, -math.inf).index_copy(0, torch.tensor(kept), row[kept])
            open_ids = [*open_ids, kept]
        logprobs.append(float(torch.log_softmax(row, -1)[ids[0, t]]))
    mask = [0] * PROMPT + [1] * (LENGTH - PROMPT)
    return TrainSample(
        tokens=ids[0].tolist(),
        loss_mask=mask,
        sampler_logprobs=logprobs,
        advantages=[advantage * m for m in mask],
        experts=RoutedExperts.pack(recorder.chosen()[: LENGTH - 1].numpy().astype("uint16")),
        support=SamplingMasks.pack(open_ids) if top else None,
    )


def group(*samples: TrainSample) -> TrainGroup:
    return TrainGroup(
        group_id="g",
        prompt_index=0,
        dispatched_version=0,
        oldest_version=0,
        rewards=[1.0] * len(samples),
        samples=list(samples),
    )


def learner(model, **objective) -> Learner:
    return Learner(
        model,
        objective=ObjectiveConfig(loss_divisor=16.0, **objective),
        correction=build_correction(CorrectionConfig(kind="none")),
        optimizer=OptimizerConfig(learning_rate=1e-4, warmup_steps=0),
        temperature=TEMPERATURE,
        total_steps=4,
        micro_batch_tokens=64,
    )


def test_a_step_on_recorded_experts_measures_no_gap_where_there_is_none() -> None:
    model = moe.make("qwen3-moe")
    samples = [sample(model, seed, advantage=1 - 2 * (seed % 2)) for seed in range(3)]
    routers = [router.module.weight.clone() for router in Recorder(model).routers]
    trained = learner(model)
    metrics = trained.train([group(*samples)], step=1)
    assert metrics["mismatch/k3_mean"] < 1e-9 and metrics["mismatch/abs_max"] < 1e-4
    assert metrics["routing/replayed"] == pytest.approx((LENGTH - 1) / LENGTH)
    assert metrics["routing/differs"] == metrics["routing/replaced"] == 0.0
    assert {f"routing/differs/{layer:02d}" for layer in range(3)} <= metrics.keys()
    assert all(describe(name).title for name in metrics)
    for before, router in zip(routers, Recorder(model).routers, strict=True):
        assert not torch.equal(before, router.module.weight)  # gates learn


def test_noisy_routing_is_a_gap_that_repeating_it_closes() -> None:
    """The gap is largest when the trainer routes by itself; repeating makes it smaller and says how often they differ."""
    model = moe.make("qwen3-moe", seed=4)
    noisy = [sample(model, seed, noise=0.3) for seed in range(6)]
    alone = [one.model_copy(update={"experts": None}) for one in noisy]
    gaps = {}
    for name, samples in (("alone", alone), ("repeated", noisy)):
        metrics = learner(moe.make("qwen3-moe", seed=4), router_replay_threshold=0.0).train([group(*samples)], step=1)
        gaps[name] = metrics
    assert gaps["repeated"]["mismatch/k3_mean"] < 0.7 * gaps["alone"]["mismatch/k3_mean"]
    assert 0 < gaps["repeated"]["routing/differs"] < 1
    assert gaps["alone"]["routing/replayed"] == 0.0 and "routing/differs" not in gaps["alone"]


def test_log_probabilities_are_of_the_tokens_that_were_open() -> None:
    model = moe.make("mixtral")
    narrow, wide = sample(model, 5, top=6), sample(model, 5)
    assert narrow.support is not None
    scores = score_tokens(
        model,
        pack([narrow, wide], max_tokens=999)[0],
        temperature=TEMPERATURE,
    )
    half = LENGTH - PROMPT
    assert scores.logprobs_N[:half].tolist() == pytest.approx(narrow.sampler_logprobs[PROMPT:], abs=1e-4)
    assert scores.logprobs_N[half:].tolist() == pytest.approx(wide.sampler_logprobs[PROMPT:], abs=1e-4)
    assert bool((scores.entropy_N[:half] <= math.log(7) + 1e-5).all()) and bool(scores.entropy_N.isfinite().all())
    metrics = learner(model).train([group(narrow)], step=1)
    assert metrics["mismatch/k3_mean"] < 1e-9 and math.isfinite(metrics["optim/grad_norm"])
    told_nothing = learner(moe.make("mixtral")).train([group(narrow.model_copy(update={"support": None}))], step=1)
    assert told_nothing["mismatch/abs_mean"] > 0.05  # without the record the two speak of different distributions


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: {"experts": RoutedExperts.pack(s.experts.unpack() + moe.EXPERTS)}, "does not exist"),
        (lambda s: {"experts": s.experts.model_copy(update={"start": 1})}, "up to position 24"),
        (lambda s: {"experts": RoutedExperts.pack(s.experts.unpack()[:, :1])}, "serves another policy"),
        (lambda s: {"support": SamplingMasks.pack([[]] * 5)}, "sampling support of 5"),
        (lambda s: {"support": SamplingMasks.pack([[moe.VOCAB + 1]] * LENGTH)}, "leaves the vocabulary"),
    ],
)
def test_a_refused_sample_stops_the_step_before_anything_is_computed(change, problem: str) -> None:
    model = moe.make("qwen3-moe")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    good = sample(model, 1)
    bad = good.model_copy(update=change(good))
    trained = learner(model)
    with pytest.raises(ReplayRefused, match=problem):
        trained.train([group(good, bad)], step=1)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_experts_for_a_dense_policy_are_refused() -> None:
    from tests.trainer.learning.models import VOCABULARY, tiny_model

    record = RoutedExperts.pack(torch.zeros(2, 1, 1, dtype=torch.int64).numpy().astype("uint16"))
    bad = TrainSample(
        tokens=[1, 2, VOCABULARY - 1],
        loss_mask=[0, 1, 1],
        sampler_logprobs=[0.0] * 3,
        advantages=[0.0, 1, 1],
        experts=record,
    )
    with pytest.raises(ReplayRefused, match="the policy has 0 with 0"):
        learner(tiny_model()).train([group(bad)], step=1)


def test_the_estimators_of_the_gap() -> None:
    gap = torch.tensor([0.0, 0.1, -0.2, 3.0])
    out = mismatch(gap)
    k3 = [math.exp(d) - 1 - d for d in gap.tolist()]
    assert out["mismatch/k1_mean"] == pytest.approx(-2.9 / 4)
    assert out["mismatch/k3_mean"] == pytest.approx(sum(k3) / 4)
    assert out["mismatch/k3_p99"] == out["mismatch/k3_max"] == pytest.approx(max(k3))
    assert out["mismatch/abs_mean"] == pytest.approx(3.3 / 4) and out["mismatch/abs_max"] == pytest.approx(3.0)
    assert mismatch(torch.zeros(0)) == {}
    assert Replay(moe.make("mixtral"), plausibility=0.5).take_counts().metrics() == {}
