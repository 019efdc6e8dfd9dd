import pytest

from sandbox.grading.verdict.report import Verdict
from sandbox.harness.types import StopReason
from tests.trainer.rollouts.make import trajectory
from trainer.config import RewardConfig
from trainer.rewards import RewardError, part_names, reward_part, score
from trainer.rewards.parts import base


@pytest.mark.parametrize(
    ("verdict", "stop", "reward"),
    [
        (Verdict.PASSED, StopReason.FINISHED, 1.0),
        (Verdict.PASSED, StopReason.NO_TOOL_CALL, 1.0),
        (Verdict.FAILED, StopReason.FINISHED, 0.0),
        (Verdict.PASSED, StopReason.TURN_LIMIT, 0.0),
        (Verdict.PASSED, StopReason.MALFORMED_CALL, 0.0),
    ],
)
def test_hidden_tests_make_the_reward(verdict, stop, reward):
    assert score(trajectory(verdict, stop), RewardConfig()).reward == reward


def test_a_passing_patch_counts_without_finish_when_so_configured():
    scored = score(trajectory(Verdict.PASSED, StopReason.TURN_LIMIT), RewardConfig(require_finish=False))
    assert scored.reward == 1.0


def test_overlong_rollouts_have_a_reward():
    """No overlong mask: a rollout that ran into a limit is trained on like any other."""
    assert score(trajectory(Verdict.FAILED, StopReason.TOKEN_LIMIT), RewardConfig()).reward == 0.0


def test_an_infrastructure_failure_has_no_reward_and_no_parts():
    scored = score(trajectory(Verdict.INFRA_ERROR, StopReason.INFRA_ERROR), RewardConfig(length_coefficient=1.0))
    assert scored.reward is None
    assert scored.reward_parts == ()


def test_every_part_is_stored_and_the_sum_is_theirs():
    scored = score(trajectory(), RewardConfig(tests_weight=2.0, length_coefficient=0.01))
    assert [part.name for part in scored.reward_parts] == ["length", "tests"]
    assert scored.reward == pytest.approx(sum(part.value * part.weight for part in scored.reward_parts))
    assert scored.reward < 2.0


def test_names_are_unique_and_a_failing_part_is_named(monkeypatch):
    monkeypatch.setattr(base, "REGISTRY", dict(base.REGISTRY))
    with pytest.raises(ValueError, match="tests"):
        reward_part("tests")(lambda trajectory, config: None)

    @reward_part("broken")
    def broken(trajectory, config):
        raise ZeroDivisionError("by zero")

    assert {"broken", "length", "tests"} <= set(part_names())
    with pytest.raises(RewardError, match=r"'broken' failed on task t.*by zero"):
        score(trajectory(), RewardConfig())
