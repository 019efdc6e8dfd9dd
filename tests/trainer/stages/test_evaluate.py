from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.grading.report import Verdict
from sandbox.harness.types import StopReason
from tests.trainer.rollouts.make import trajectory
from trainer.stages.evaluate import mean_interval, pass_at_k, summarise, wilson_interval


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_pass(nck):
    n, c, k = nck
    outcomes = [True] * c + [False] * (n - c)
    subsets = list(combinations(outcomes, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize("bad", [(4, 2, 5), (4, 5, 1), (4, 2, 0), (4, -1, 1)])
def test_impossible_counts_are_refused(bad):
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(*bad)


def runs(task: str, verdicts: list[Verdict]):
    return [
        trajectory(verdict, StopReason.FINISHED, sample=i).model_copy(update={"task_id": task})
        for i, verdict in enumerate(verdicts)
    ]


P, F, X = Verdict.PASSED, Verdict.FAILED, Verdict.INFRA_ERROR


def test_report_by_hand():
    report = summarise([*runs("a", [P, F, F, F]), *runs("b", [F] * 4), *runs("c", [P] * 4)], samples=4, temperature=0.8)
    assert report.pass1 == pytest.approx((0.25 + 0 + 1) / 3)
    assert report.best_of_k == pytest.approx(2 / 3)
    assert report.solved == {"a": (1, 4), "b": (0, 4), "c": (4, 4)}
    assert report.missing == 0
    assert report.pass1_interval[0] < report.pass1 < report.pass1_interval[1]
    assert (report.policy_tokens, report.turns) == (6.0, 2.0)


def test_missing_samples_are_neither_failures_nor_passes():
    report = summarise([*runs("a", [P, X]), *runs("b", [F, F])], samples=2, temperature=1.0)
    assert (report.pass1, report.missing, report.tasks) == (0.5, 1, 2)
    assert report.solved["a"] == (1, 1)


def test_no_verdict_at_all_is_an_error():
    with pytest.raises(ValueError, match="no sample"):
        summarise(runs("a", [X, X]), samples=2, temperature=1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_intervals_hold_their_mean_and_stay_in_range(values):
    mean = sum(values) / len(values)
    for low, high in (mean_interval(values), wilson_interval(mean, len(values))):
        assert -1e-9 <= low <= mean + 1e-9
        assert mean - 1e-9 <= high <= 1 + 1e-9


def test_wilson_interval_is_not_empty_at_the_ends():
    assert wilson_interval(0.0, 10)[1] > 0.2
    assert wilson_interval(1.0, 10)[0] < 0.8
