"""The asynchronous stage on recorded groups: what it publishes, keeps and repeats."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import OrchestratorConfig, SummaryConfig
from trainer.errors import BatchTimeout, StageError
from trainer.learning.metrics import describe
from trainer.learning.step import NonFiniteGradients
from trainer.rl.stage import PromptRepeated, run_rl
from trainer.toy.preset import toy_harness
from trainer.weights import WeightStore

pytestmark = pytest.mark.integration

OPENING = 4
"""Tokens of `make_group` before the policy's first."""


@pytest.fixture(scope="module")
def groups():
    model = policies.load(BASE_POLICY).model
    return [make_group(model, index) for index in range(8)]


def run(root, groups, *, sink=None, config=None, policy_dir=BASE_POLICY):
    config = config or small_config()
    sink = sink or MemorySink()
    source = ListSource(groups, config.groups_per_step)
    store = WeightStore(root / "weights", dtype="float32")
    checkpoints = CheckpointStore(root / "checkpoints", keep=config.checkpoint.keep)
    result = run_rl(
        policy_dir=policy_dir, config=config, seed=0, source=source, sink=sink, store=store, checkpoints=checkpoints
    )
    return result, sink, store, source


def test_a_whole_run_publishes_each_version_and_keeps_checkpoints(tmp_path, groups):
    result, sink, store, source = run(tmp_path, groups)
    assert (result.outcome, result.step) == ("completed", 4)
    assert [version for version, _ in sink.versions] == [0, 1, 2, 3, 4]
    assert sink.checkpoints == [(2, False), (4, True)]
    assert source.asked == [1, 2, 3, 4]
    assert store.latest() == 4
    final = policies.load(result.checkpoint / "policy").model.state_dict()
    published = store.load(4).state
    assert all(torch.equal(published[name], final[name]) for name in published)
    assert {step: values["staleness/max"] for step, values in sink.values.items()} == {1: 0.0, 2: 1.0, 3: 2.0, 4: 3.0}
    for values in sink.values.values():
        assert "routing/replayed" not in values  # a dense policy
        for name in values:
            describe(name)


class DiesWithACheckpoint(MemorySink):
    def checkpoint_saved(self, step: int, path: Path, *, final: bool) -> None:
        raise RuntimeError(f"killed at {path.name}")


def test_a_trainer_that_dies_with_a_checkpoint_has_reported_its_step(tmp_path, groups):
    """Who resumes from the checkpoint never repeats that step, so nobody would report it later."""
    sink = DiesWithACheckpoint()
    with pytest.raises(RuntimeError, match="killed at step-000002"):
        run(tmp_path, groups, sink=sink)
    assert {"reward/mean", "time/step"} <= sink.values[2].keys()
    _, later, _, source = run(tmp_path, groups)
    assert source.asked == [3, 4] and later.values.keys() == {3, 4}
    assert "time/checkpoint" in later.values[4]


def test_resume_replays_and_gives_the_same_next_loss(tmp_path, groups):
    _, whole, _, _ = run(tmp_path / "whole", groups)
    config = small_config()
    # The trainer dies after step 3; its last checkpoint is that of step 2.
    with pytest.raises(BatchTimeout):
        run(tmp_path / "cut", groups[:6], config=config)
    result, resumed, store, source = run(tmp_path / "cut", groups, config=config)
    assert source.asked == [3, 4]
    assert result.step == 4
    for step in (3, 4):
        assert resumed.values[step]["optim/loss"] == whole.values[step]["optim/loss"]
        assert resumed.values[step]["optim/grad_norm"] == whole.values[step]["optim/grad_norm"]
    assert resumed.versions[-1] == whole.versions[-1]
    assert store.latest() == 4
    assert any("resumed from the checkpoint of step 2" in message for _, message in resumed.events)


def test_a_finished_run_resumes_to_nothing(tmp_path, groups):
    run(tmp_path, groups)
    result, sink, _, source = run(tmp_path, groups)
    assert (result.outcome, result.step, source.asked) == ("completed", 4, [])
    assert sink.values == {}


def test_stopping_checkpoints_the_current_step(tmp_path, groups):
    result, sink, _, _ = run(tmp_path, groups, sink=MemorySink(stop_after=1))
    assert (result.outcome, result.step) == ("stopped", 1)
    assert sink.checkpoints == [(1, False)]
    result, sink, _, source = run(tmp_path, groups)
    assert (result.outcome, source.asked) == ("completed", [2, 3, 4])


def test_stopping_before_the_first_step_leaves_no_checkpoint(tmp_path, groups):
    result, sink, store, _ = run(tmp_path, groups, sink=MemorySink(stop_after=0))
    assert (result.outcome, result.step, result.checkpoint) == ("stopped", 0, None)
    assert store.latest() == 0


def test_a_prompt_is_trained_on_once(tmp_path, groups):
    with pytest.raises(PromptRepeated, match="prompt 0 was trained on before"):
        run(tmp_path / "a", [*groups[:2], groups[0], groups[3]])
    with pytest.raises(PromptRepeated, match="prompt 1"):
        run(tmp_path / "b", [groups[1], groups[1]])
    # Also across a resume.
    with pytest.raises(BatchTimeout):
        run(tmp_path / "c", groups[:4])
    with pytest.raises(PromptRepeated, match="prompt 2"):
        run(tmp_path / "c", [*groups[:4], groups[2], groups[5]])


def test_a_short_batch_is_refused(tmp_path, groups):
    with pytest.raises(StageError, match="1 groups, 2 are configured"):
        run(tmp_path, groups[:1])


def test_waiting_in_vain_is_reported(tmp_path):
    sink = MemorySink()
    with pytest.raises(BatchTimeout):
        run(tmp_path, [], sink=sink)
    assert any(level == "error" and "no full batch" in message for level, message in sink.events)


def test_a_non_finite_gradient_names_its_groups_and_keeps_the_last_version(tmp_path, groups):
    bad = groups[2].model_copy(
        update={
            "samples": [
                s.model_copy(update={"advantages": [a * float("inf") if a else 0.0 for a in s.advantages]})
                for s in groups[2].samples
            ]
        }
    )
    sink = MemorySink()
    with pytest.raises(NonFiniteGradients, match="step 2"):
        run(tmp_path, [*groups[:2], bad, groups[3]], sink=sink)
    assert sink.versions[-1][0] == 1
    assert sink.events[-1][0] == "error"


def not_finite(group):
    """A group whose gradient is no number."""
    samples = [
        s.model_copy(update={"advantages": [a * float("inf") if a else 0.0 for a in s.advantages]})
        for s in group.samples
    ]
    return group.model_copy(update={"samples": samples})


def test_steps_without_a_finite_gradient_may_be_skipped_and_are_so_again_after_a_resume(tmp_path, groups):
    config = small_config(orchestrator=OrchestratorConfig(max_non_finite_steps=1))
    recorded = [*groups[:2], not_finite(groups[2]), groups[3], *groups[4:]]
    _, whole, store, _ = run(tmp_path / "whole", recorded, config=config)
    assert [whole.values[step]["optim/skipped"] for step in range(1, 5)] == [0.0, 1.0, 0.0, 0.0]
    assert store.manifest(2).digest == store.manifest(1).digest != store.manifest(3).digest
    assert any("step 2: gradients were not finite" in message for _, message in whole.events)
    with pytest.raises(BatchTimeout):
        run(tmp_path / "cut", recorded[:6], config=config)
    _, again, other, source = run(tmp_path / "cut", recorded, config=config)
    assert source.asked == [3, 4]
    assert other.manifest(4).digest == store.manifest(4).digest


def test_more_of_them_in_a_row_than_allowed_stop_the_run(tmp_path, groups):
    config = small_config(orchestrator=OrchestratorConfig(max_non_finite_steps=1))
    recorded = [*groups[:2], not_finite(groups[2]), groups[3], not_finite(groups[4]), *groups[5:]]
    sink = MemorySink()
    with pytest.raises(NonFiniteGradients, match="step 3"):
        run(tmp_path / "a", recorded, config=config, sink=sink)
    assert [version for version, _ in sink.versions] == [0, 1, 2]
    # The count goes on over a resume: the checkpoint of step 2 knows that it was skipped.
    with pytest.raises(NonFiniteGradients, match="step 3"):
        run(tmp_path / "a", recorded, config=config)


def test_a_version_that_was_never_published_is_refused_before_it_is_learned_from(tmp_path, groups):
    liar = groups[2].model_copy(update={"newest_version": 2})
    with pytest.raises(StageError, match=r"step 2: group g2 has tokens of version 2 and the newest is 1"):
        run(tmp_path, [*groups[:2], liar, *groups[3:]])


def test_an_engine_that_serves_other_weights_than_it_says_is_reported(tmp_path, groups):
    """On-policy tokens whose probabilities are not those of the version that they name."""
    wrong = [
        group.model_copy(
            update={
                "samples": [
                    s.model_copy(update={"sampler_logprobs": [p * 0.5 for p in s.sampler_logprobs]})
                    for s in group.samples
                ]
            }
        )
        for group in groups[:2]
    ]
    sink = MemorySink()
    with pytest.raises(BatchTimeout):
        run(tmp_path, wrong, sink=sink)
    assert any("the engine serves other weights than it says" in message for _, message in sink.events)


@pytest.mark.parametrize(("trigger", "told"), [(OPENING, 1), (OPENING + 1, 0), (0, 0)])
def test_windows_that_open_full_are_an_error_once(tmp_path, groups, trigger, told):
    summary = SummaryConfig(trigger_tokens=trigger, max_tokens=1)
    _, sink, _, _ = run(tmp_path, groups, config=small_config(harness=toy_harness(summary=summary)))
    found = [message for level, message in sink.events if level == "error"]
    assert len(found) == told
    assert all(f"trigger_tokens={trigger}" in message and f"take {OPENING} tokens" in message for message in found)


def test_a_policy_whose_calls_would_not_be_understood_does_not_start(tmp_path, groups):
    folder = Path(shutil.copytree(BASE_POLICY, tmp_path / "stranger"))
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace('"arguments": ', '"parameters": '))
    with pytest.raises(StageError, match=r"policy 'stranger' cannot play episodes: .* another form"):
        run(tmp_path, groups, policy_dir=folder)
