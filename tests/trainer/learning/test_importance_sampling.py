import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import CorrectionConfig
from trainer.learning.importance_sampling import TokenEvidence, build_correction, correction_stats, token_ratio

RATIOS = torch.tensor([0.1, 0.5, 1.0, 2.0, 5.0])
KINDS = ("none", "truncated", "masked", "dppo_tv", "clipped", "sequence")


def evidence(sampler: torch.Tensor, trainer: torch.Tensor, advantages: float = 1.0, rows=None) -> TokenEvidence:
    rows_N = torch.zeros(len(sampler), dtype=torch.int64) if rows is None else torch.tensor(rows)
    return TokenEvidence(trainer, sampler, torch.full((len(sampler),), advantages), rows_N)


def weights(kind: str, *, advantage: float = 1.0, rows=None, **settings: float) -> list[float]:
    """Weights of tokens of probability 0.01 at the trainer, with RATIOS."""
    trainer_N = torch.full((5,), 0.01).log()
    tokens = evidence(trainer_N - RATIOS.log(), trainer_N, advantage, rows)
    return build_correction(CorrectionConfig(kind=kind, **settings)).weights(tokens).tolist()


def test_each_kind_on_the_same_ratios():
    assert weights("none") == [1.0] * 5
    assert weights("truncated", clip_high=2.0) == pytest.approx([0.1, 0.5, 1.0, 2.0, 2.0])
    assert weights("masked", clip_low=0.4, clip_high=2.1) == pytest.approx([0.0, 0.5, 1.0, 2.0, 0.0])


def test_auto_is_the_algorithms_own():
    tokens = evidence(torch.tensor([-3.0]), torch.tensor([-1.0]))
    assert build_correction(CorrectionConfig(), own="none").weights(tokens).tolist() == [1.0]
    assert build_correction(CorrectionConfig()).weights(tokens).tolist() == [2.0]
    assert build_correction(CorrectionConfig(kind="masked"), own="none").weights(tokens).tolist() == [0.0]


def test_a_clip_holds_only_what_the_advantage_pushes_further():
    assert weights("clipped", advantage=1.0) == pytest.approx([0.1, 0.5, 1.0, 0.0, 0.0])
    assert weights("clipped", advantage=-1.0) == pytest.approx([0.0, 0.0, 1.0, 2.0, 5.0])
    assert weights("clipped", advantage=1.0, epsilon_high=1.5) == pytest.approx([0.1, 0.5, 1.0, 2.0, 0.0])


@given(
    log_ratio=st.floats(-1, 1).filter(lambda v: all(abs(v - edge) > 1e-4 for edge in (-0.22314, 0.18232))),
    advantage=st.sampled_from([-2.0, -0.5, 0.5, 2.0]),
)
def test_the_clipped_weight_is_the_gradient_of_ppos_surrogate(log_ratio, advantage):
    sampler = torch.tensor([-1.0])
    logp = torch.tensor([-1.0 + log_ratio], requires_grad=True)
    ratio = (logp - sampler).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).sum()
    wanted = torch.autograd.grad(surrogate, logp)[0]
    tokens = evidence(sampler, logp.detach(), advantage)
    weight = build_correction(CorrectionConfig(kind="clipped")).weights(tokens)
    got = torch.autograd.grad((weight * advantage * logp).sum(), logp)[0]
    assert torch.allclose(got, wanted, atol=1e-5)


def test_total_variation_judges_by_probability_not_by_ratio():
    """A rare token may multiply its probability; a common one may not move far."""
    rare, common = torch.tensor([0.05, 0.9]), torch.tensor([0.01, 0.6])
    assert build_correction(CorrectionConfig(kind="clipped")).weights(evidence(common.log(), rare.log())).tolist() == [
        0.0,
        0.0,
    ]
    tv = build_correction(CorrectionConfig(kind="dppo_tv", tv_bound=0.2))
    assert tv.weights(evidence(common.log(), rare.log())).tolist() == pytest.approx([5.0, 0.0])
    assert tv.weights(evidence(common.log(), rare.log(), -1.0)).tolist() == pytest.approx([5.0, 1.5])


def test_a_sequence_has_one_ratio_the_geometric_mean_of_its_tokens():
    rows = [0, 0, 1, 1, 1]
    got = weights("sequence", rows=rows, epsilon_low=1.0, epsilon_high=100.0)
    first, second = (0.1 * 0.5) ** 0.5, (1.0 * 2.0 * 5.0) ** (1 / 3)
    assert got == pytest.approx([first, first, second, second, second], rel=1e-5)
    assert weights("sequence", rows=rows, advantage=1.0) == pytest.approx([first, first, 0, 0, 0], rel=1e-5)
    assert weights("sequence", rows=rows, advantage=-1.0) == pytest.approx([0, 0, second, second, second], rel=1e-5)


def test_masked_refuses_an_empty_window():
    with pytest.raises(ValueError, match="clip_low"):
        CorrectionConfig(kind="masked", clip_low=2.0, clip_high=2.0)


@pytest.mark.parametrize("kind", KINDS)
@given(logps=st.lists(st.floats(-30, 0), min_size=1, max_size=20), advantage=st.sampled_from([-1.0, 0.0, 1.0]))
def test_equal_logprobs_change_nothing(kind, logps, advantage):
    tokens = evidence(torch.tensor(logps), torch.tensor(logps), advantage)
    weight_N = build_correction(CorrectionConfig(kind=kind)).weights(tokens)
    assert tokens.ratio_N.tolist() == weight_N.tolist() == [1.0] * len(logps)
    stats = correction_stats(tokens.ratio_N, weight_N, build_correction(CorrectionConfig(kind=kind)).clipped(tokens))
    assert (stats.ess, stats.chi2, stats.masked_share, stats.clipped_share) == (1.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_tokens_have_no_weights(kind):
    nothing = torch.tensor([])
    assert build_correction(CorrectionConfig(kind=kind)).weights(evidence(nothing, nothing)).tolist() == []


def test_ratio_is_detached_and_finite_for_impossible_tokens():
    trainer_N = torch.tensor([0.0, -1e4], requires_grad=True)
    ratio_N = token_ratio(trainer_N, torch.tensor([-1e4, 0.0]))
    assert not ratio_N.requires_grad
    assert torch.isfinite(ratio_N).all()


def test_statistics_are_those_of_their_definitions():
    ratio_N, weight_N = RATIOS, torch.tensor([0.0, 0.5, 1.0, 2.0, 2.0])
    stats = correction_stats(ratio_N, weight_N, torch.tensor([False, False, False, False, True]))
    assert stats.ess == pytest.approx(5.5**2 / (5 * (0.25 + 1 + 4 + 4)))
    assert stats.chi2 == pytest.approx((0.01 + 0.25 + 1 + 4 + 25) / 5 - 1, abs=1e-6)
    assert stats.masked_share == pytest.approx(0.2)
    assert stats.clipped_share == pytest.approx(0.2)
    assert stats.ratio_max == 5.0


def test_no_tokens_count_as_on_policy():
    stats = correction_stats(torch.tensor([]), torch.tensor([]), torch.tensor([], dtype=torch.bool))
    assert (stats.ess, stats.masked_share) == (1.0, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_counts_as_clipped_inside_the_bounds(kind):
    """Ratios of 0.9 to 1.1 lie inside every token bound, and their sequence's mean inside a wide sequence bound."""
    sampler_N = torch.full((6,), 0.1).log()
    ratio_N = torch.tensor([0.9, 0.95, 1.0, 1.02, 1.08, 1.1])
    wide = {"epsilon_low": 0.5, "epsilon_high": 0.5} if kind == "sequence" else {}
    correction = build_correction(CorrectionConfig(kind=kind, **wide))
    tokens = evidence(sampler_N + ratio_N.log(), sampler_N)
    stats = correction_stats(tokens.ratio_N, correction.weights(tokens), correction.clipped(tokens))
    assert (stats.clipped_share, stats.masked_share) == (0.0, 0.0)


def test_only_truncation_clips():
    tokens = evidence((0.1 * RATIOS).log(), torch.full((5,), 0.1).log())
    truncated = build_correction(CorrectionConfig(kind="truncated", clip_high=1.5))
    stats = correction_stats(tokens.ratio_N, truncated.weights(tokens), truncated.clipped(tokens))
    assert stats.clipped_share == pytest.approx(0.4)
    masked = build_correction(CorrectionConfig(kind="masked", clip_high=1.5))
    stats = correction_stats(tokens.ratio_N, masked.weights(tokens), masked.clipped(tokens))
    assert (stats.clipped_share, stats.masked_share) == (0.0, pytest.approx(0.6))
