"""The reference of the KL term over a run, and over its resume."""

import pytest
import torch

from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, ObjectiveConfig
from trainer.errors import BatchTimeout
from trainer.rl.learner import build_reference
from trainer.rl.stage import run_rl
from trainer.weights import WeightStore

pytestmark = pytest.mark.integration

STEPS = 6


@pytest.fixture(scope="module")
def groups():
    model = policies.load(BASE_POLICY).model
    return [make_group(model, index) for index in range(STEPS)]


def config(**objective):
    return small_config(
        steps=STEPS,
        groups_per_step=1,
        max_in_flight_groups=1,
        objective=ObjectiveConfig(loss_divisor=32.0, kl_coefficient=0.5, **objective),
        checkpoint=CheckpointConfig(every_steps=3, keep=1, keep_versions=2, anchor_every=100),
    )


def run(root, groups, config):
    sink = MemorySink()
    store = WeightStore(root / "weights", dtype="float32")
    run_rl(
        policy_dir=BASE_POLICY,
        config=config,
        seed=0,
        source=ListSource(groups, 1),
        sink=sink,
        store=store,
        checkpoints=CheckpointStore(root / "checkpoints", keep=1),
    )
    return sink, store


def test_k1_starts_at_zero_and_falls_back_to_zero_where_a_lagged_reference_jumps(tmp_path, groups):
    start, _ = run(tmp_path / "start", groups, config())
    lagged, _ = run(tmp_path / "lagged", groups, config(reference="lagged", reference_steps=2))
    assert start.values[1]["kl/k1"] == pytest.approx(0.0, abs=1e-6)
    assert [step for step in lagged.values if abs(lagged.values[step]["kl/k1"]) < 1e-6] == [1, 3, 5]
    assert all(abs(start.values[step]["kl/k1"]) > 1e-4 for step in range(2, STEPS + 1))
    assert start.values[2]["kl/k1"] == lagged.values[2]["kl/k1"], "the same reference until the first jump"


def test_a_resumed_run_has_the_same_reference_though_versions_are_collected(tmp_path, groups):
    lagged = config(reference="lagged", reference_steps=2)
    whole, _ = run(tmp_path / "whole", groups, lagged)
    with pytest.raises(BatchTimeout):
        run(tmp_path / "cut", groups[:5], lagged)  # dies in step 6; resumes from step 3, whose reference is version 2
    resumed, store = run(tmp_path / "cut", groups, lagged)
    assert sorted(resumed.values) == [4, 5, 6]
    for step in resumed.values:
        for name in ("optim/loss", "kl/k1"):
            assert resumed.values[step][name] == whole.values[step][name], (step, name)


def test_the_lagged_reference_is_a_published_version(tmp_path):
    store = WeightStore(tmp_path, dtype="float32")
    policy = policies.load(BASE_POLICY)
    store.publish(0, policy.model.state_dict())
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.add_(1.0)
    store.publish(1, policy.model.state_dict())
    reference = build_reference(config(reference="lagged", reference_steps=1), BASE_POLICY, store)
    assert reference is not None
    before = reference.model.get_input_embeddings().weight.clone()
    reference.follow(1)
    assert torch.allclose(reference.model.get_input_embeddings().weight, before + 1.0)
    assert not any(p.requires_grad for p in reference.model.parameters())


def test_no_kl_needs_no_reference(tmp_path):
    assert build_reference(small_config(), BASE_POLICY, WeightStore(tmp_path)) is None
