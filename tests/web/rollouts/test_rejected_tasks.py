"""Groups of a task that was rejected since they were dispatched."""

from __future__ import annotations

import pytest

from composer_web.env import REPOSITORY
from composer_web.policies.models import Policy
from composer_web.policies.services import import_base
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Group
from composer_web.rollouts.worker import execution
from composer_web.runs.models import Run
from composer_web.tasks.services import record_controls
from sandbox.grading.controls.run import Controls
from sandbox.grading.verdict.outcomes import Cause


@pytest.fixture
def policy(db: None) -> Policy:
    """The shipped one: a worker looks at its tokenizer before it plays."""
    return import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)


@pytest.mark.django_db(transaction=True)
def test_a_task_that_another_group_found_bad_is_not_trained(running: Run) -> None:
    services.pump(run_id=running.pk)
    group = Group.objects.filter(run=running).earliest("prompt_index")
    found = Controls(bundle_hash=group.task_version.bundle_hash, ok=False, reason="doing nothing is passed")
    record_controls(version=group.task_version, controls=found.model_dump(mode="json"), ok=False)
    assert "doing nothing is passed" in execution.execute(group.pk)
    group.refresh_from_db()
    assert (group.state, group.outcome) == ("dropped", Cause.TASK_INVALID)
