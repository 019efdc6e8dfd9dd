"""Deadlines cover the legal work that they bound."""

import pytest
from pydantic import ValidationError

from sandbox.grading.grader import grading_limits
from trainer.config import BehaviourConfig, OrchestratorConfig, RewardConfig
from trainer.rollouts.deadlines import grading_seconds, group_deadline, reward_seconds
from trainer.rollouts.ending import GRADINGS
from trainer.rollouts.limits import EpisodeLimits
from trainer.toy.preset import toy_rl, toy_sampling

SLOW = toy_sampling(episode_seconds=300.0, engine_seconds=900.0)


def test_a_group_may_play_every_legal_attempt_to_its_end(task):
    config = toy_rl(sampling=SLOW, infra_retries=2)
    attempt = EpisodeLimits.of(SLOW).wall_seconds + grading_limits(task).life_seconds
    assert group_deadline(config, task, episodes=8, slots=32) > 3 * attempt
    assert toy_rl().group_deadline() > 2 * 720.0, (
        "the default covers two attempts of 120 s of tools and 600 s of engine"
    )


def test_waiting_for_sandboxes_counts(task):
    config = toy_rl(sampling=SLOW)
    one, two = (group_deadline(config, task, episodes=n, slots=32) for n in (32, 33))
    assert two - one == pytest.approx(3 * (1200.0 + GRADINGS * grading_seconds(task) + reward_seconds(config)))


def test_a_language_model_that_grades_may_take_its_time():
    graded = toy_rl(reward=RewardConfig(behaviour=BehaviourConfig(rubric=0.1)))
    assert reward_seconds(graded) >= reward_seconds(toy_rl()) + 4 * 120.0


def test_a_deadline_of_its_own_that_no_attempt_fits_into_is_refused():
    with pytest.raises(
        ValidationError, match=r"orchestrator.group_seconds=700 .*add up to 720; set at least that, or 0"
    ):
        toy_rl(orchestrator=OrchestratorConfig(group_seconds=700.0))
    assert toy_rl(orchestrator=OrchestratorConfig(group_seconds=720.0)).group_deadline(after_turns=9e9) == 720.0


def test_a_deadline_of_its_own_leaves_time_to_grade(task):
    """Validation knows no task yet: the turns fit, and the grading of this one would not."""
    config = toy_rl(orchestrator=OrchestratorConfig(group_seconds=720.0))
    slow = task.model_copy(update={"verifier": task.verifier.model_copy(update={"timeout_seconds": 600.0})})
    assert group_deadline(config, slow, episodes=8, slots=8) > 720.0 + 600.0
    assert group_deadline(config, slow, episodes=8, slots=8) >= 720.0 + grading_limits(slow).life_seconds
    wide = toy_rl(orchestrator=OrchestratorConfig(group_seconds=9000.0))
    assert group_deadline(wide, slow, episodes=8, slots=8) == 9000.0


def test_the_trainer_waits_at_least_as_long_as_an_attempt_plays():
    assert toy_rl().batch_deadline == 1800.0
    assert toy_rl(sampling=toy_sampling(engine_seconds=3600.0)).batch_deadline == 3720.0
