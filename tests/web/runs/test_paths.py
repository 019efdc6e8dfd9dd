"""What a run is served with: the files of the version that it starts from, not those of its lineage's first one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_web.evals.services import create_evaluation
from composer_web.policies.models import Policy
from composer_web.policies.services import create_child, real_path, record_checkpoint
from composer_web.rollouts.dispatch.services import dispatch_evaluation
from composer_web.rollouts.models import Group
from composer_web.rollouts.worker.execution import make_plan
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.runs.paths import served_weights
from composer_web.tasks.models import Suite
from tests.web.making import SMALL
from trainer.config import MTPConfig, RunConfig

pytestmark = pytest.mark.django_db


@pytest.fixture
def stretched(policy: Policy, tmp_path: Path) -> Path:
    """The second version of the lineage `long`: mid-training has scaled its context, and trained a head beside it."""
    folder = Path(shutil.copytree(real_path(policy.base_dir), tmp_path / "step-000002" / "policy"))
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"rope_theta": 1e6})
    )
    (folder / "mtp").mkdir()
    (folder / "mtp" / "config.json").write_text("{}")
    child = create_child(name="long", parent=policy, parent_version=0)
    record_checkpoint(policy=child, version=2, path=folder, final=True)
    return folder


def begun(reference: str) -> Run:
    stage = SMALL.model_copy(update={"sampling": SMALL.sampling.model_copy(update={"num_speculative_tokens": 2})})
    return services.create_run(config=RunConfig(name="on", policy=reference, seed=3, stage=stage))


def test_engines_read_the_files_of_the_version_that_a_run_starts_from(
    stretched: Path, make_suite: Callable[..., Suite]
) -> None:
    suite = make_suite()
    run = begun("long")
    assert served_weights(run).policy_dir == str(stretched) and served_weights(run).num_speculative_tokens == 2
    services.start_run(run=run)
    services.mark_running(run=run, owner="t")
    evaluation = create_evaluation(run=run, policy=run.policy_out, version=1, suite=suite, tasks=1, samples=2)
    dispatch_evaluation(evaluation=evaluation, version_ids=[suite.memberships.all()[0].task_version_id])
    plan = make_plan(Group.objects.get(evaluation=evaluation))
    assert plan.deployment is not None and plan.deployment.policy_dir == str(stretched)
    shutil.rmtree(stretched)
    assert served_weights(run).policy_dir == str(real_path(run.policy_in.base_dir)), "what is left of it"


def test_guessing_without_a_head_is_said(stretched: Path, make_suite: Callable[..., Suite]) -> None:
    make_suite()
    said = {name: " ".join(services.check_config(begun(name).configuration)) for name in ("base", "long")}
    assert "'base' has no draft head, so stage.sampling.num_speculative_tokens=2 changes nothing" in said["base"]
    assert "head" not in said["long"]
    config = begun("base").configuration
    joint = config.stage.model_copy(update={"mtp": MTPConfig(num_speculative_tokens=2)})
    trained = services.check_config(config.model_copy(update={"stage": joint}))
    assert "head" not in " ".join(trained), "the run trains one while it goes on"
