"""The loss against closed forms on tabular policies, and the scores against a plain forward pass."""

import math

import pytest
import torch

from tests.trainer.learning.models import VOCABULARY, tiny_model
from trainer.learning.loss import kl_adjusted_advantages, policy_loss, score_tokens
from trainer.learning.packing import pack
from trainer.types import TrainSample


def sample(tokens: list[int], mask: list[int], advantage: float = 1.0) -> TrainSample:
    return TrainSample(
        tokens=tokens,
        loss_mask=mask,
        sampler_logprobs=[-1.0 * m for m in mask],
        advantages=[advantage * m for m in mask],
    )


def test_scores_equal_a_plain_forward_at_the_sampling_temperature():
    model = tiny_model()
    rows = [sample([3, 1, 4, 1, 5, 9], [0, 0, 1, 1, 0, 1]), sample([2, 7, 1], [0, 1, 1])]
    [batch] = pack(rows, max_tokens=1000)
    scores = score_tokens(model, batch, temperature=0.7)
    expected = []
    for row in sorted(rows, key=lambda r: len(r.tokens)):
        logps = torch.log_softmax(model(torch.tensor([row.tokens])).logits[0] / 0.7, -1).detach()
        expected += [float(logps[t - 1, row.tokens[t]]) for t, m in enumerate(row.loss_mask) if m]
    assert scores.logprobs_N.tolist() == pytest.approx(expected, abs=1e-5)
    assert 0 < float(scores.entropy_N.max()) <= math.log(VOCABULARY) + 1e-4


def test_only_policy_tokens_have_gradient_weight():
    """Changing an observation's own probability target changes nothing: the loss sums policy tokens only."""
    logps_N = torch.tensor([-1.0, -2.0], requires_grad=True)
    policy_loss(logps_N, torch.tensor([1.0, 0.0]), torch.ones(2), divisor=4.0).backward()
    assert logps_N.grad.tolist() == [-0.25, 0.0]


def test_length_does_not_change_a_tokens_weight():
    def gradient_of_first(n: int) -> float:
        logps_N = torch.full((n,), -1.0, requires_grad=True)
        policy_loss(logps_N, torch.ones(n), torch.ones(n), divisor=100.0).backward()
        return float(logps_N.grad[0])

    assert gradient_of_first(1) == gradient_of_first(50) == pytest.approx(-0.01)


def test_reward_gaps_of_one_hundredth_give_gradients_of_one_hundredth():
    def gradient(gap: float) -> torch.Tensor:
        logps_N = torch.tensor([-1.0, -2.0], requires_grad=True)
        policy_loss(logps_N, torch.tensor([gap / 2, -gap / 2]), torch.ones(2), divisor=1.0).backward()
        return logps_N.grad

    assert torch.allclose(gradient(0.01) * 100, gradient(1.0))


def tabular(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, generator=generator, requires_grad=True), torch.randn(6, generator=generator)


def exact_gradient(logits_V: torch.Tensor, term) -> torch.Tensor:
    """Gradient of E_{x~π}[surrogate], all outcomes enumerated with their probability held constant."""
    logps_V = torch.log_softmax(logits_V, -1)
    total = (logps_V.exp().detach() * term(logps_V)).sum()
    return torch.autograd.grad(total, logits_V)[0]


def test_k1_in_the_advantage_is_the_gradient_of_the_kl():
    logits_V, reference_logits_V = tabular(1)
    reference_V = torch.log_softmax(reference_logits_V, -1)
    logps_V = torch.log_softmax(logits_V, -1)
    kl = (logps_V.exp() * (logps_V - reference_V)).sum()
    analytic = torch.autograd.grad(kl, logits_V)[0]

    def surrogate(logps_V):
        advantages = kl_adjusted_advantages(torch.zeros(6), logps_V, reference_V, coefficient=1.0)
        return -advantages * logps_V

    assert torch.allclose(exact_gradient(logits_V, surrogate), analytic, atol=1e-6)
    assert float(analytic.norm()) > 0.1


def test_k1_as_a_direct_loss_has_no_gradient_in_expectation():
    logits_V, reference_logits_V = tabular(2)
    reference_V = torch.log_softmax(reference_logits_V, -1)
    gradient = exact_gradient(logits_V, lambda logps_V: logps_V - reference_V)
    assert float(gradient.norm()) < 1e-6


def test_k3_variance_explodes_where_k1_stays_calm():
    """Unit Gaussians at distance d: KL = d²/2; at KL = 5 the k3 estimator's variance dwarfs that of k1."""
    d = math.sqrt(10.0)
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_r = -0.5 * (x - d) ** 2 + 0.5 * x**2  # log p/q with q = N(0,1), p = N(d,1)
    k1, k3 = -log_r, log_r.exp() - 1 - log_r
    assert float(k1.mean()) == pytest.approx(5.0, abs=0.1)
    assert float(k3.var()) > 10 * float(k1.var())


def test_no_reference_leaves_advantages_alone():
    advantages = torch.tensor([0.5, -0.5])
    assert kl_adjusted_advantages(advantages, torch.zeros(2), None, coefficient=0.1) is advantages
