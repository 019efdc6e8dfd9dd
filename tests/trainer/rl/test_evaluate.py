import asyncio
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.base import SandboxLost
from sandbox.backends.choice import default_backend
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.types import StopReason
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.procedural import generate
from tests.trainer.rollouts.make import trajectory
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from tests.trainer.stages.memory import BASE_POLICY
from trainer.config import RewardConfig
from trainer.inference.contract import InferenceError
from trainer.policy import load_tokenizer, make_renderer
from trainer.rl.evaluate import EvalReport, evaluate, mean_interval, pass_at_k, summarise, wilson_interval
from trainer.rollouts.episode import RolloutServices
from trainer.rollouts.turns import EpisodeSettings
from trainer.toy.preset import toy_harness, toy_sampling


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
    assert (report.output_tokens, report.turns) == (6.0, 2.0)


def test_missing_samples_are_neither_failures_nor_passes():
    report = summarise([*runs("a", [P, X]), *runs("b", [F, F])], samples=2, temperature=1.0)
    assert (report.pass1, report.missing, report.tasks) == (0.5, 1, 2)
    assert report.solved["a"] == (1, 1)


def test_every_best_of_k_has_the_same_k():
    """A task that lost samples is in none: its best of fewer would pull the curve down."""
    report = summarise([*runs("a", [P, F, F, F]), *runs("b", [F, F, X, X])], samples=4, temperature=1.0)
    assert (report.k, report.best_of_k, report.metrics()["eval/best_of_k"]) == (4, 1.0, 1.0)
    report = summarise([*runs("a", [P, F, F, X]), *runs("b", [F, F, X, X])], samples=4, temperature=1.0)
    assert report.best_of_k is None and report.best_of_k_interval is None
    assert report.metrics() == {"eval/pass1": pytest.approx(1 / 6)}


def test_no_verdict_at_all_is_an_error():
    with pytest.raises(ValueError, match="no sample"):
        summarise(runs("a", [X, X]), samples=2, temperature=1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_intervals_hold_their_mean_and_stay_in_range(values):
    mean = sum(values) / len(values)
    for low, high in (mean_interval(values), wilson_interval(mean, len(values))):
        assert -1e-9 <= low <= mean + 1e-9
        assert mean - 1e-9 <= high <= 1 + 1e-9


def test_no_pass_of_few_tasks_says_little():
    assert mean_interval([0.0] * 8)[1] > 0.3
    assert mean_interval([0.0] * 400)[1] < 0.01
    assert mean_interval([1.0] * 8)[0] < 0.7


def test_wilson_interval_is_not_empty_at_the_ends():
    assert wilson_interval(0.0, 10)[1] > 0.2
    assert wilson_interval(1.0, 10)[0] < 0.8


# --- what the infrastructure loses, and what the policy does ----------------------------------------------------------


class Losing:
    """Real sandboxes, of which the starts with these numbers are lost. The first one of an episode is its own, the next
    is its grading's."""

    name = "losing"

    def __init__(self, lost: set[int]) -> None:
        self.real, self.lost, self.starts = default_backend(), lost, 0

    async def start(self, *args, **options):
        self.starts += 1
        if self.starts in self.lost:
            raise SandboxLost("its host went away")
        return await self.real.start(*args, **options)

    def probe(self):
        return self.real.probe()

    async def sweep(self):
        return await self.real.sweep()

    async def close(self):
        await self.real.close()


TASK = generate(11, "train")


async def evaluated(tmp_path, *scripts, lost=(), samples=1, infra_retries=2):
    """The report, the trajectories, the sessions that were played, and the sandboxes that were started."""
    renderer = make_renderer(load_tokenizer(BASE_POLICY))
    client, backend, seen = ScriptedClient(renderer, *scripts), Losing(set(lost)), []

    async def remember(one):
        seen.append(one)

    services = RolloutServices(
        client=client, renderer=renderer, backend=backend, environments=EnvironmentStore(tmp_path),
        deployment="policy", slots=asyncio.Semaphore(1),
    )  # fmt: skip
    settings = EpisodeSettings(
        toy_sampling(max_turn_tokens=600, max_context_tokens=2000), toy_harness(), RewardConfig()
    )
    try:
        report: EvalReport = await evaluate(
            tasks=[TASK], samples=samples, settings=settings, services=services, seed=1,
            infra_retries=infra_retries, on_trajectory=remember,
        )  # fmt: skip
    finally:
        await backend.close()
    return report, seen, {request.session for request in client.requests}, backend.starts


async def test_a_grading_that_was_lost_is_done_again_and_the_rollout_is_not_played_again(tmp_path):
    report, seen, sessions, starts = await evaluated(tmp_path, solution(TASK), lost={2})
    assert starts == 3, "the episode, the lost grading, and the one that gave the verdict"
    assert len(sessions) == 1, "no token is sampled again"
    assert [one.verdict for one in seen] == [Verdict.PASSED]
    assert (report.solved, report.missing) == ({TASK.id: (1, 1)}, 0)


async def test_a_grading_that_stays_lost_is_missing_data_and_the_attempt_is_played_again(tmp_path):
    report, seen, sessions, _ = await evaluated(tmp_path, solution(TASK), lost={2, 3})
    assert [one.verdict for one in seen] == [Verdict.INFRA_ERROR, Verdict.PASSED]
    assert (seen[0].report.outcome, seen[0].reward) == (Cause.SANDBOX_LOST, None)
    assert len(sessions) == 2 and report.solved == {TASK.id: (1, 1)}


async def test_only_what_the_infrastructure_lost_leaves_the_denominator(tmp_path):
    wrong, silent = [[call("finish")]], [[call("run_terminal_cmd", command="exit 3")], "not a call"]
    report, seen, _, _ = await evaluated(
        tmp_path, solution(TASK), wrong, silent, [InferenceError("gone")], samples=4, infra_retries=0
    )
    assert sorted(str(one.verdict) for one in seen) == ["failed", "failed", "infra_error", "passed"]
    assert (report.solved, report.missing) == ({TASK.id: (1, 3)}, 1)
    assert report.pass1 == pytest.approx(1 / 3)
