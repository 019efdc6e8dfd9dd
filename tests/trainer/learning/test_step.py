import math

import pytest
import torch

from tests.trainer.learning.models import tiny_model
from trainer.algorithms.advantage import group_advantages
from trainer.config import CorrectionConfig, ObjectiveConfig, OptimizerConfig
from trainer.learning.backend import SingleProcess
from trainer.learning.importance_sampling import correction_of
from trainer.learning.loss import score_tokens
from trainer.learning.metrics import describe
from trainer.learning.packing import pack
from trainer.learning.step import Learner, NonFiniteGradients
from trainer.toy.preset import toy_rl
from trainer.types import TrainGroup, TrainSample

TEMPERATURE = 0.8


def learner(model=None, *, reference=None, micro_batch_tokens=64, precision="float32", **objective) -> Learner:
    return Learner(
        model or tiny_model(),
        objective=ObjectiveConfig(loss_divisor=10.0, **objective),
        correction=correction_of(ObjectiveConfig(**objective)),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=0),
        temperature=TEMPERATURE,
        total_steps=10,
        micro_batch_tokens=micro_batch_tokens,
        backend=SingleProcess(precision=precision),
        reference=reference,
    )


def logprobs_of(model, tokens: list[int]) -> list[float]:
    with torch.no_grad():
        logps = torch.log_softmax(model(torch.tensor([tokens])).logits[0] / TEMPERATURE, -1)
    return [0.0] + [float(logps[t - 1, tokens[t]]) for t in range(1, len(tokens))]


def group(model, rewards: list[float], seed: int = 0) -> TrainGroup:
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for index, advantage in enumerate(group_advantages(rewards)):
        tokens = torch.randint(1, 32, (5 + 2 * index,), generator=generator).tolist()
        mask = [0, 0] + [1] * (len(tokens) - 2)
        logps = [lp * m for lp, m in zip(logprobs_of(model, tokens), mask, strict=True)]
        samples.append(
            TrainSample(tokens=tokens, loss_mask=mask, sampler_logprobs=logps, advantages=[advantage * m for m in mask])
        )
    return TrainGroup(
        group_id=f"g{seed}", prompt_index=seed, dispatched_version=0, oldest_version=0, rewards=rewards, samples=samples
    )


def test_a_step_makes_rewarded_tokens_likelier_and_punished_ones_rarer():
    model = tiny_model()
    batch = group(model, [1.0, 0.0])
    before = [sum(logprobs_of(model, s.tokens)[2:]) for s in batch.samples]
    metrics = learner(model).train([batch], step=1)
    after = [sum(logprobs_of(model, s.tokens)[2:]) for s in batch.samples]
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert metrics["optim/grad_norm"] > 0


def test_on_policy_mismatch_is_rounding_only():
    model = tiny_model()
    metrics = learner(model).train([group(model, [1.0, 0.0, 0.0])], step=1)
    assert metrics["mismatch/k3_mean"] < 1e-10
    assert metrics["correction/ess"] == pytest.approx(1.0)
    assert metrics["correction/masked_share"] == 0.0
    for name in metrics:
        describe(name)


def test_micro_batching_does_not_change_the_update():
    batches = [group(tiny_model(), [1.0, 0.0, 0.0, 1.0], seed) for seed in range(3)]
    whole, parts = tiny_model(), tiny_model()
    big = learner(whole, micro_batch_tokens=10_000).train(batches, step=1)
    small = learner(parts, micro_batch_tokens=1).train(batches, step=1)
    assert big["optim/loss"] == pytest.approx(small["optim/loss"], abs=1e-6)
    assert big["optim/grad_norm"] == pytest.approx(small["optim/grad_norm"], rel=1e-4)


def test_the_same_batch_gives_the_same_bits():
    batches = [group(tiny_model(), [1.0, 0.0], seed) for seed in range(2)]
    models = [tiny_model(), tiny_model()]
    losses = [learner(model).train(batches, step=1)["optim/loss"] for model in models]
    assert losses[0] == losses[1]
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_step_on_hints_alone_is_a_step_and_leaves_no_gradients_behind():
    model = tiny_model()
    before = [p.clone() for p in model.parameters()]
    learned = learner(model)
    (model.lm_head.weight.square().sum()).backward()  # as textual feedback does before the step
    metrics = learned.train([group(model, [1.0, 1.0, 1.0])], step=1)
    assert metrics["optim/grad_norm"] > 0
    assert any(not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert learned.train([group(model, [1.0, 1.0])], step=2)["optim/grad_norm"] == 0.0


def test_zero_signal_groups_change_nothing_and_are_counted():
    model = tiny_model()
    before = [p.clone() for p in model.parameters()]
    metrics = learner(model).train([group(model, [1.0, 1.0, 1.0])], step=1)
    assert metrics["optim/skipped_samples"] == 3
    assert metrics["optim/grad_norm"] == 0.0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_skipping_zero_advantages_equals_training_on_them():
    """A zero-signal group beside a useful one: leaving it out is exact, not an approximation."""
    useful, silent = group(tiny_model(), [1.0, 0.0], 1), group(tiny_model(), [0.0, 0.0], 2)
    with_silent = learner(tiny_model()).train([useful, silent], step=1)
    without = learner(tiny_model()).train([useful], step=1)
    assert with_silent["optim/loss"] == without["optim/loss"]
    assert with_silent["optim/grad_norm"] == without["optim/grad_norm"]


def test_kl_term_pulls_back_towards_the_reference():
    model, reference = tiny_model(0), tiny_model(1)
    silent = [group(model, [0.0, 0.0], seed) for seed in range(4)]
    pulled = learner(model, reference=reference, kl_coefficient=1.0)
    first = pulled.train(silent, step=1)["kl/k1"]
    assert first != 0.0
    metrics = pulled.train(silent, step=2)
    assert metrics["optim/skipped_samples"] == 0
    assert metrics["optim/grad_norm"] > 0


def test_kl_needs_a_reference():
    with pytest.raises(ValueError, match="reference"):
        learner(kl_coefficient=0.1)


def test_masked_correction_silences_tokens_the_sampler_disagrees_on():
    model = tiny_model()
    batch = group(model, [1.0, 0.0])
    off = [
        s.model_copy(
            update={"sampler_logprobs": [lp - 3.0 * m for lp, m in zip(s.sampler_logprobs, s.loss_mask, strict=True)]}
        )
        for s in batch.samples
    ]
    off_policy = batch.model_copy(update={"samples": off})
    masked = learner(tiny_model(), correction=CorrectionConfig(kind="masked")).train([off_policy], step=1)
    assert masked["correction/masked_share"] == 1.0
    assert masked["optim/grad_norm"] == 0.0
    truncated = learner(tiny_model(), correction=CorrectionConfig(kind="truncated", clip_high=2.0)).train(
        [off_policy], step=1
    )
    assert truncated["correction/clipped_share"] == 1.0
    assert truncated["correction/ratio_mean"] == pytest.approx(math.exp(3.0), rel=1e-3)
    assert truncated["mismatch/k3_p99"] > 10


def test_a_non_finite_gradient_stops_the_step_and_keeps_the_weights():
    model = tiny_model()
    batch = group(model, [1.0, 0.0])
    poisoned = batch.model_copy(
        update={
            "samples": [
                s.model_copy(update={"advantages": [a * float("inf") if a else 0.0 for a in s.advantages]})
                for s in batch.samples
            ]
        }
    )
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(NonFiniteGradients, match="step 3"):
        learner(model).train([poisoned], step=3)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_the_shipped_configuration_computes_what_it_always_did():
    """The loss of one step, bit for bit by the formula written out, and pinned as a number."""
    model, sampler = tiny_model(), tiny_model(5)
    batch = [group(sampler, [1.0, 0.0, 0.0, 1.0], seed) for seed in (10, 11, 12)]
    objective = toy_rl().objective
    trained = Learner(
        model,
        objective=objective,
        correction=correction_of(objective),
        optimizer=toy_rl().optimizer,
        temperature=TEMPERATURE,
        total_steps=40,
        micro_batch_tokens=10_000,
    )
    [packed] = pack([sample for one in batch for sample in one.samples], max_tokens=10_000)
    logps_N = score_tokens(model, packed, temperature=TEMPERATURE).logprobs_N.detach()
    ratio_N = (logps_N - packed.sampler_logprobs_N).exp()
    by_hand = -(ratio_N.clamp(max=2.0) * packed.advantages_N * logps_N).sum() / 4096.0
    loss = trained.train(batch, step=1)["optim/loss"]
    assert loss == float(by_hand)
    assert loss == pytest.approx(7.255469e-06, abs=1e-9)


def test_a_step_in_bfloat16_keeps_float32_weights_and_stays_near_the_float32_one():
    groups = [group(tiny_model(), [1.0, 0.0, 0.0, 1.0])]
    moved = {}
    for precision in ("float32", "bfloat16"):
        model = tiny_model()
        made = learner(model)
        made.backend = SingleProcess(precision=precision)
        metrics = made.train(groups, step=1)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        moved[precision] = metrics["optim/grad_norm"]
    assert moved["bfloat16"] != moved["float32"]
    assert moved["bfloat16"] == pytest.approx(moved["float32"], rel=0.05)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_does_not_depend_on_how_many_logits_exist_at_a_time(precision: str):
    groups = [group(tiny_model(), [1.0, 0.0, 0.0, 1.0])]
    after = []
    for at_once in (0, 100):
        model = tiny_model()
        made = learner(model)
        made.backend = SingleProcess(precision=precision, lm_head_chunk_size=at_once)
        norm = made.train(groups, step=1)["optim/grad_norm"]
        after.append(norm)
    assert after[1] == pytest.approx(after[0], rel=1e-5 if precision == "float32" else 0.02)
