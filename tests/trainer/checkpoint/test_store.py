import os

import pytest
import torch

from tests.trainer.stages.memory import BASE_POLICY
from trainer import policy as policies
from trainer.checkpoint import in_use
from trainer.checkpoint.store import CheckpointError, CheckpointState, CheckpointStore
from trainer.weights.differences import restore


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


def halves(policy, step: int):
    """Weights in bfloat16, of which few differ from step to step."""
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in policy.model.state_dict().items()}
    first = next(iter(weights))
    weights[first] = weights[first].clone()
    weights[first].view(-1)[: step + 1] += 1
    return weights


def save_steps(store, policy, steps):
    for step in steps:
        store.save(policy, OPTIMIZER, state(step), weights=halves(policy, step), dtype=torch.bfloat16)


def files_of(store, step):
    return sorted(path.name for path in (store.root / f"step-{step:06d}" / "policy").glob("*.safetensors*"))


def test_the_two_newest_are_whole_and_older_ones_are_differences(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=3)
    save_steps(store, policy, range(1, 6))
    assert store.steps() == [2, 3, 4, 5]
    assert [files_of(store, step) for step in store.steps()] == [
        ["model.safetensors.difference"], ["model.safetensors.difference"], ["model.safetensors"], ["model.safetensors"],
    ]  # fmt: skip
    older = tmp_path / "step-000002"
    assert not (older / "optimizer.safetensors").exists()
    size = sum(path.stat().st_size for path in (older / "policy").glob("*.safetensors*"))
    assert size < (tmp_path / "step-000005" / "policy" / "model.safetensors").stat().st_size / 10
    restore(older / "policy")
    again = policies.load(older / "policy").model.state_dict()
    assert all(torch.equal(again[name], tensor.float()) for name, tensor in halves(policy, 2).items())


def test_each_version_comes_back_while_newer_ones_are_written(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=3)
    for step in range(1, 7):
        save_steps(store, policy, [step])
        chosen = store.steps()[0]
        restore(tmp_path / f"step-{chosen:06d}" / "policy")
        again = policies.load(tmp_path / f"step-{chosen:06d}" / "policy").model.state_dict()
        assert all(torch.equal(again[name], tensor.float()) for name, tensor in halves(policy, chosen).items())


def test_what_is_in_use_stays_and_is_whole_when_its_neighbours_go(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=2)
    save_steps(store, policy, range(1, 4))
    assert files_of(store, 1) == ["model.safetensors.difference"]
    assert in_use.hold(tmp_path / "step-000001", "run-7")
    save_steps(store, policy, range(4, 8))
    assert store.steps() == [1, 5, 6, 7]
    assert files_of(store, 1) == ["model.safetensors"]
    again = policies.load(tmp_path / "step-000001" / "policy").model.state_dict()
    assert all(torch.equal(again[name], tensor.float()) for name, tensor in halves(policy, 1).items())
    in_use.release(tmp_path / "step-000001", "run-7")
    save_steps(store, policy, [8])
    assert store.steps() == [6, 7, 8]


def test_saving_a_step_that_is_in_use_again_keeps_it_in_use(tmp_path, policy):
    store = CheckpointStore(tmp_path, keep=1)
    path = store.save(policy, OPTIMIZER, state(3))
    in_use.hold(path, "evaluation-2")
    store.save(policy, OPTIMIZER, state(3))
    assert in_use.holders(path) == {"evaluation-2"}
    assert store.latest(stage="rl").state.step == 3
