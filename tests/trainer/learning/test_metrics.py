import pytest

from trainer.learning.metrics import METRICS, batch_metrics, describe, mean_of_stats
from trainer.rollouts.types import TrainGroup


def group(rewards, oldest, stats=None) -> TrainGroup:
    return TrainGroup(
        group_id="g",
        prompt_index=0,
        dispatched_version=oldest,
        oldest_version=oldest,
        rewards=rewards,
        samples=[],
        stats=stats or {},
    )


def test_rewards_groups_and_staleness_by_hand():
    groups = [group([1.0, 0.0], 5, {"stop/finished": 0.5}), group([0.0, 0.0], 3, {"stop/turn_limit": 1.0})]
    values = batch_metrics(groups, trained_version=6)
    assert values["reward/mean"] == 0.25
    assert values["reward/best_of_k"] == 0.5
    assert values["groups/zero_signal"] == 0.5
    assert values["staleness/mean"] == 2.0
    assert values["staleness/max"] == 3.0
    assert values["stop/finished"] == 0.25
    assert values["stop/turn_limit"] == 0.5


def test_means_are_weighted_by_rollouts():
    assert mean_of_stats([({"a": 1.0}, 3), ({"a": 5.0}, 1)]) == {"a": 2.0}
    assert mean_of_stats([]) == {}


def test_every_name_has_a_definition_and_families_extend():
    assert describe("stop/turn_limit").unit == "share"
    assert "turn_limit" in describe("stop/turn_limit").title
    assert all(metric.title and metric.meaning for metric in METRICS.values())
    with pytest.raises(KeyError):
        describe("reward/unheard-of")
