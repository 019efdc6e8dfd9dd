"""Spearman's rank correlation, with ties and where it is not defined."""

from __future__ import annotations

import pytest

from composer_web.studies.correlation import spearman


def test_ranks_correlate() -> None:
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(0.94868, abs=1e-5)


@pytest.mark.parametrize(("a", "b"), [([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3])])
def test_it_is_not_defined_for_too_few_points_or_a_side_that_does_not_vary(a: list[float], b: list[float]) -> None:
    assert spearman(a, b) is None
