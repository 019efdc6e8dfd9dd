import os

import pytest
import torch

from tests.trainer.stages.memory import BASE_POLICY
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointError, CheckpointState, CheckpointStore


@pytest.fixture(scope="module")
def policy():
    return policies.load(BASE_POLICY)


OPTIMIZER = {"a.weight|exp_avg": torch.arange(6.0), "a.weight|step": torch.tensor(3.0)}


def state(step: int) -> CheckpointState:
    return CheckpointState(stage="rl", step=step, version=step, seed=1, consumed_prompts=[4, 2, 9])


def test_comes_back_as_it_went(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=1)
    path = store.save(policy, OPTIMIZER, state(3))
    found = store.latest(stage="rl")
    assert found.path == path
    assert found.state.consumed_prompts == [4, 2, 9]
    assert found.optimizer.keys() == OPTIMIZER.keys()
    assert all(torch.equal(found.optimizer[name], OPTIMIZER[name]) for name in OPTIMIZER)
    again = policies.load(found.policy_dir).model.state_dict()
    assert all(torch.equal(again[name], value) for name, value in policy.model.state_dict().items())


def test_an_empty_store_has_no_latest(tmp_path):
    assert CheckpointStore(tmp_path / "none", keep=1).latest(stage="rl") is None


def test_the_newest_and_keep_more_stay(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 3, 4, 5):
        store.save(policy, OPTIMIZER, state(step))
    assert store.steps() == [3, 4, 5]
    assert {path.name for path in tmp_path.iterdir()} == {"step-000003", "step-000004", "step-000005"}


def test_saving_a_step_again_replaces_it(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(policy, OPTIMIZER, state(3))
    store.save(policy, {"a.weight|exp_avg": torch.zeros(1)}, state(3))
    assert store.latest(stage="rl").optimizer["a.weight|exp_avg"].tolist() == [0.0]


def test_an_unfinished_write_is_invisible(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=1)
    path = store.save(policy, OPTIMIZER, state(3))
    os.rename(path, tmp_path / ".step-000004.77.partial")
    (tmp_path / "step-000009").mkdir()
    assert store.steps() == []
    assert store.latest(stage="rl") is None


@pytest.mark.parametrize("victim", ["optimizer.safetensors", "policy/model.safetensors", "policy/config.json"])
def test_damage_is_found_and_named(tmp_path, policy, victim):
    store = CheckpointStore(tmp_path, keep=1)
    path = store.save(policy, OPTIMIZER, state(3))
    data = bytearray((path / victim).read_bytes())
    data[len(data) // 2] ^= 1
    (path / victim).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{victim} is damaged; remove this folder"):
        store.latest(stage="rl")


def test_a_missing_file_and_an_unreadable_state_are_named(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=1)
    path = store.save(policy, OPTIMIZER, state(3))
    (path / "optimizer.safetensors").unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        store.latest(stage="rl")
    (path / "state.json").write_text('{"step": "x"}')
    with pytest.raises(CheckpointError, match="cannot be read"):
        store.latest(stage="rl")


def test_a_checkpoint_of_another_stage_is_refused(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(policy, OPTIMIZER, state(3))
    with pytest.raises(CheckpointError, match="is of stage 'rl', this run is 'sft'"):
        store.latest(stage="sft")


def test_a_disk_that_refuses_leaves_the_old_checkpoint_and_a_clear_message(tmp_path, policy, monkeypatch):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(policy, OPTIMIZER, state(3))

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trainer.checkpoint.store.sync_tree", full)
    with pytest.raises(CheckpointError, match="No space left on device; free space"):
        store.save(policy, OPTIMIZER, state(4))
    assert store.steps() == [3]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000003"]
