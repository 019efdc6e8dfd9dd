import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import CorrectionConfig
from trainer.learning.correction import build_correction, correction_stats, token_ratio

RATIOS = torch.tensor([0.1, 0.5, 1.0, 2.0, 5.0])


def weights(kind: str, **settings: float) -> list[float]:
    return build_correction(CorrectionConfig(kind=kind, **settings)).weights(RATIOS).tolist()


def test_each_kind_on_the_same_ratios():
    assert weights("none") == [1.0] * 5
    assert weights("truncated", clip_high=2.0) == pytest.approx([0.1, 0.5, 1.0, 2.0, 2.0])
    assert weights("masked", clip_low=0.5, clip_high=2.0) == pytest.approx([0.0, 0.5, 1.0, 2.0, 0.0])


def test_masked_refuses_an_empty_window():
    with pytest.raises(ValueError, match="clip_low"):
        build_correction(CorrectionConfig(kind="masked", clip_low=2.0, clip_high=2.0))


@pytest.mark.parametrize("kind", ["none", "truncated", "masked"])
@given(logps=st.lists(st.floats(-30, 0), min_size=1, max_size=20))
def test_equal_logprobs_change_nothing(kind, logps):
    logps_N = torch.tensor(logps)
    ratio_N = token_ratio(logps_N, logps_N)
    weight_N = build_correction(CorrectionConfig(kind=kind)).weights(ratio_N)
    assert ratio_N.tolist() == weight_N.tolist() == [1.0] * len(logps)
    stats = correction_stats(ratio_N, weight_N)
    assert (stats.ess, stats.chi2, stats.masked_share, stats.clipped_share) == (1.0, 0.0, 0.0, 0.0)


def test_ratio_is_detached_and_finite_for_impossible_tokens():
    trainer_N = torch.tensor([0.0, -1e4], requires_grad=True)
    ratio_N = token_ratio(trainer_N, torch.tensor([-1e4, 0.0]))
    assert not ratio_N.requires_grad
    assert torch.isfinite(ratio_N).all()


def test_statistics_are_those_of_their_definitions():
    ratio_N, weight_N = RATIOS, torch.tensor([0.0, 0.5, 1.0, 2.0, 2.0])
    stats = correction_stats(ratio_N, weight_N)
    assert stats.ess == pytest.approx(5.5**2 / (5 * (0.25 + 1 + 4 + 4)))
    assert stats.chi2 == pytest.approx((0.01 + 0.25 + 1 + 4 + 25) / 5 - 1, abs=1e-6)
    assert stats.masked_share == pytest.approx(0.2)
    assert stats.clipped_share == pytest.approx(0.2)
    assert stats.ratio_max == 5.0


def test_no_tokens_count_as_on_policy():
    stats = correction_stats(torch.tensor([]), torch.tensor([]))
    assert (stats.ess, stats.masked_share) == (1.0, 0.0)
