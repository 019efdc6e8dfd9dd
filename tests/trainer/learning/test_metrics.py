import pytest

from trainer.learning.metrics import METRICS, batch_metrics, describe, mean_of_stats
from trainer.types import TrainGroup


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


def test_lengths_are_means_over_the_rollouts_of_an_outcome():
    """A group without a passed rollout says nothing about how long those are, and weighs nothing."""
    some = {"verdict/passed": 0.25, "turns/passed": 2.0, "turns/failed": 8.0, "turns/mean": 6.5}
    none = {"verdict/passed": 0.0, "turns/failed": 16.0, "turns/mean": 16.0}
    values = batch_metrics([group([1.0, 0, 0, 0], 0, some), group([0.0, 0.0], 0, none)], trained_version=0)
    assert values["turns/passed"] == 2.0
    assert values["turns/failed"] == (3 * 8.0 + 2 * 16.0) / 5
    assert values["turns/mean"] == (4 * 6.5 + 2 * 16.0) / 6
    assert "turns/passed" not in batch_metrics([group([0.0, 0.0], 0, none)], trained_version=0)
    before = group([1.0, 1.0], 0, {"verdict/passed": 1.0})  # of a run that began before these were recorded
    assert (
        batch_metrics([before, group([1.0], 0, {**some, "verdict/passed": 1.0})], trained_version=0)["turns/passed"]
        == 2.0
    )


def test_rewards_are_told_apart_by_what_their_tasks_are():
    """A step without tasks of a source says nothing of it: absent, not 0."""
    mutation = group([1.0, 0.0], 0).model_copy(update={"labels": {"source": "mutation", "environment": "ab12"}})
    other = group([0.5], 0).model_copy(update={"labels": {"source": "mutation"}})
    mining = group([0.25, 0.75, 0.5], 0).model_copy(update={"labels": {"source": "mining"}})
    values = batch_metrics([mutation, other, mining], trained_version=0)
    assert values["reward/source/mutation"] == 0.5 and values["reward/source/mining"] == 0.5
    assert values["reward/environment/ab12"] == 0.5
    assert "mutation" in describe("reward/source/mutation").title
    assert not [name for name in batch_metrics([group([1.0], 0)], trained_version=0) if "source" in name]


def test_every_name_has_a_definition_and_families_extend():
    assert describe("stop/turn_limit").unit == "share"
    assert "turn_limit" in describe("stop/turn_limit").title
    assert all(metric.title and metric.meaning for metric in METRICS.values())
    with pytest.raises(KeyError):
        describe("reward/unheard-of")
