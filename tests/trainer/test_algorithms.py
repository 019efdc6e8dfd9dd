"""Each algorithm against its published formula, computed another way."""

import statistics

import pytest
import torch

from tests.trainer.rollouts.make import trajectory
from trainer.algorithms import ALGORITHMS, group_streams
from trainer.config import CorrectionConfig, ObjectiveConfig, RLConfig
from trainer.learning.importance_sampling import Clipped, NoCorrection, SequenceClipped, Truncated, correction_of
from trainer.learning.loss import policy_loss
from trainer.rl.rl_sync import with_advantages
from trainer.rollouts.group import build_train_group
from trainer.toy.preset import toy_rl
from trainer.types import Segment

REWARDS = [1.0, 0.0, 0.25, 0.0]
LENGTHS = [3, 5, 2, 7]


def config(name: str) -> RLConfig:
    return toy_rl(groups_per_step=1, group_size=4, max_in_flight_groups=1, objective=ObjectiveConfig(algorithm=name))


def segment(length: int) -> Segment:
    """A prompt token and `length` policy tokens."""
    return Segment(
        tokens=[1] * (length + 1),
        logprobs=[0.0] + [-1.0] * length,
        loss_mask=[0] + [1] * length,
        versions=[-1] + [0] * length,
    )


def loss_of(name: str, logps: list[torch.Tensor]) -> float:
    """The trainer's loss, on-policy, of one group with these log-probabilities by rollout."""
    made = config(name)
    streams = group_streams(REWARDS, [[segment(length)] for length in LENGTHS], made)
    advantages_N = torch.cat([torch.tensor(s.advantages[1:]) for s in streams])
    logps_N = torch.cat(logps)
    return float(policy_loss(logps_N, advantages_N, torch.ones_like(logps_N), divisor=made.objective.loss_divisor))


def logprobs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [-torch.rand(length, generator=generator) for length in LENGTHS]


MEAN = statistics.mean(REWARDS)
STD = statistics.stdev(REWARDS) + 1e-6
Z = ObjectiveConfig().loss_divisor


SUMS, MEANS = [float(x.sum()) for x in logprobs()], [float(x.mean()) for x in logprobs()]


def minus_dot(advantages: list[float], values: list[float]) -> float:
    return -sum(a * v for a, v in zip(advantages, values, strict=True))


CENTRED = [r - MEAN for r in REWARDS]
STANDARDISED = [(r - MEAN) / STD for r in REWARDS]
LEFT_OUT = [r - (sum(REWARDS) - r) / 3 for r in REWARDS]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("composer", minus_dot(CENTRED, SUMS) / Z),
        ("dr_grpo", minus_dot(CENTRED, SUMS) / Z),
        ("rloo", minus_dot(LEFT_OUT, SUMS) / Z),
        ("grpo", minus_dot(STANDARDISED, MEANS) / 4),
        ("gspo", minus_dot(STANDARDISED, MEANS) / 4),
        ("cispo", minus_dot(STANDARDISED, SUMS) / sum(LENGTHS)),
    ],
)
def test_the_loss_is_the_published_one(name, published):
    assert loss_of(name, logprobs()) == pytest.approx(published, rel=1e-5)


def test_every_choice_of_the_configuration_has_a_file_and_the_other_way_round():
    choices = ObjectiveConfig.model_json_schema()["properties"]["algorithm"]["enum"]
    assert sorted(choices) == sorted(ALGORITHMS)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("composer", Truncated),
        ("cispo", Truncated),
        ("grpo", Clipped),
        ("dr_grpo", Clipped),
        ("gspo", SequenceClipped),
        ("rloo", NoCorrection),
    ],
)
def test_each_has_its_own_correction_and_gives_way_to_a_named_one(name, own):
    assert isinstance(correction_of(ObjectiveConfig(algorithm=name)), own)
    named = ObjectiveConfig(algorithm=name, correction=CorrectionConfig(kind="none"))
    assert isinstance(correction_of(named), NoCorrection)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_equal_rewards_teach_nothing(name):
    streams = group_streams([0.5] * 4, [[segment(length)] for length in LENGTHS], config(name))
    assert len(streams) == 4
    assert not any(any(s.advantages) for s in streams)


def test_only_the_std_blows_up_a_trifle():
    """Gaps of 0.01 and 1.0: gradient ratio 1:100 without std; GRPO makes them equal."""

    def first(name: str, gap: float) -> float:
        return ALGORITHMS[name].advantages([gap, 0.0])[0]

    assert first("composer", 0.01) / first("composer", 1.0) == pytest.approx(0.01)
    assert first("grpo", 0.01) / first("grpo", 1.0) == pytest.approx(1.0, rel=1e-3)


def test_a_rollout_of_several_segments_is_one_rollout():
    """All its tokens share one advantage; a normaliser counts the tokens of all its segments."""
    rollouts = [[segment(2), segment(4)], [segment(3)], [segment(1)], [segment(1)]]
    composer = group_streams(REWARDS, rollouts, config("composer"))
    assert [sorted(set(s.advantages[1:])) for s in composer[:2]] == [[1.0 - MEAN]] * 2
    grpo = group_streams(REWARDS, rollouts, config("grpo"))
    assert grpo[0].advantages[1] == grpo[1].advantages[1] == pytest.approx((1 - MEAN) / STD * Z / (4 * 6))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_synchronous_loop_gives_the_groups_of_the_rollout_workers(name):
    """`rl_sync.py` computes the advantages itself, in sight; the samples are those of a worker, bit for bit."""
    made = config(name)
    rollouts = [
        trajectory(reward=reward).model_copy(update={"segments": (segment(length),)})
        for reward, length in zip(REWARDS, LENGTHS, strict=True)
    ]
    group = build_train_group(rollouts, group_id="g", prompt_index=0, config=made)
    blank = group.model_copy(update={"samples": [], "rewards": []})
    assert with_advantages(rollouts, blank, made) == group
    assert any(any(sample.advantages) for sample in group.samples)
