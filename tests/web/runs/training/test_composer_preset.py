"""The preset of the published recipe, played and trained: its rewards, windows, hints and replay together.

Fewer and smaller groups, and the toy's limits in a shorter context, of which episodes fill several windows; all other values
are the preset's.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from composer_web.env import REPOSITORY, env
from composer_web.policies.services import import_base
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group
from composer_web.rollouts.worker import loop
from composer_web.rollouts.worker.execution import deployed_at, execute
from composer_web.runs import services
from composer_web.runs.launch.presets import preset
from composer_web.runs.models import Metric, Run
from composer_web.runs.training import stages
from composer_web.runs.training.trainer_bridge import DatabaseGroupSource
from composer_web.tasks.models import Suite
from tests.web.making import train_here
from trainer import policy as policies
from trainer.config import RLConfig, RunConfig
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.types import TrainGroup

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
BASE = REPOSITORY / "policies" / "base"
CONTEXT = 448


class Played(DatabaseGroupSource):
    """Rollout workers in this process, before a step."""

    taken: ClassVar[list[TrainGroup]] = []

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        rollouts.pump(run_id=self.control.run.pk)
        for group in Group.objects.filter(run=self.control.run, state="dispatched").order_by("prompt_index"):
            execute(group.pk)
        groups = super().next_batch(step, timeout=timeout)
        self.taken.extend(groups)
        return groups


@pytest.fixture
def start(
    make_suite: Callable[..., Suite], engine: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Path], Run]:
    """start(folder) → the run of a policy after its last step."""
    monkeypatch.setattr(env(), "inference_url", engine.url)
    monkeypatch.setattr(loop, "current_loop", None)  # the episode loop keeps its client
    monkeypatch.setattr(stages, "DatabaseGroupSource", Played)
    deployed_at.clear()
    Played.taken.clear()
    make_suite()

    def start(folder: Path) -> Run:
        import_base(path=folder, name="base", toy=True)
        found = preset("composer")
        assert found is not None and isinstance(found.config.stage, RLConfig)
        smaller = {"steps": 2, "groups_per_step": 2, "group_size": 3, "max_in_flight_groups": 2, "eval_suite": None}
        sampling = found.config.stage.sampling.model_copy(update={"max_context_tokens": CONTEXT})
        changed = {**smaller, "max_off_policy_steps": 0, "sampling": sampling}
        stage = found.config.stage.model_copy(update=changed)
        config = RunConfig(name="recipe", policy="base", seed=5, stage=RLConfig.model_validate(stage.model_dump()))
        run = services.create_run(config=config)
        return train_here(services.start_run(run=run))

    return start


def mixture(folder: Path) -> Path:
    """The toy's tokenizer before random weights of experts, which end turns often: their lengths differ."""
    shutil.copytree(BASE, folder)
    known = policies.load(BASE)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    sizes = known.model.config
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=sizes.vocab_size, hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=2, head_dim=16, num_experts=4, num_experts_per_tok=2,
            max_position_embeddings=1024, bos_token_id=sizes.bos_token_id, eos_token_id=sizes.eos_token_id,
            tie_word_embeddings=False,
        )
    )  # fmt: skip
    with torch.no_grad():
        model.lm_head.weight[known.renderer.stop_ids] *= 25.0
    model.save_pretrained(folder)
    return folder


def metric(run: Run, name: str) -> list[float]:
    """Values by step."""
    rows = Metric.objects.filter(run=run, key__name=name, step__gt=0).order_by("step")
    return [float(value) for value in rows.values_list("value", flat=True)]


def test_the_recipe_trains_the_toy(start: Callable[[Path], Run]) -> None:
    run = start(BASE)
    assert run.state == "finished" and run.step == 2, run.failure
    stage = run.configuration.stage
    assert isinstance(stage, RLConfig)
    summary = stage.harness.summary
    assert stage.harness.profile == "full" and stage.sampling.max_turn_tokens == 96
    assert (summary.max_tokens, summary.trigger_tokens + summary.max_tokens) == (112, int(0.75 * CONTEXT))
    played = [rollout for group in run.groups.all() for rollout in group.rollouts.all()]
    assert len(played) == 12 and all(rollout.verdict in ("passed", "failed") for rollout in played)
    parts = {part["name"]: part for rollout in played for part in rollout.reward_parts}
    assert parts.keys() == {"tests", "length", "unfinished_todos", "poor_calls", "style", "communication"}
    assert all(value < 0 for value in metric(run, "reward/part/length"))
    assert max(metric(run, "segments/mean")) > 1, "a summary opened another window"
    assert sum(len(group.samples) for group in Played.taken) > len(played), "each window is trained on"
    assert any(group.hints for group in Played.taken) and max(metric(run, "feedback/turns")) >= 1
    assert max(metric(run, "optim/grad_norm")) > 0
    assert max(metric(run, "mismatch/k3_mean")) < 1e-6, "the trainer computes with what it publishes in bfloat16"


def test_the_recipe_replays_the_experts_of_a_mixture(start: Callable[[Path], Run], tmp_path: Path) -> None:
    run = start(mixture(tmp_path / "mixture"))
    assert run.state == "finished" and run.step == 2, run.failure
    assert Played.taken and all(sample.experts is not None for group in Played.taken for sample in group.samples)
    assert metric(run, "routing/replayed") and min(metric(run, "routing/replayed")) > 0.5
    assert max(metric(run, "routing/differs")) == 0, "the router of the published weights"
