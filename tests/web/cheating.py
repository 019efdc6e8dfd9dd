"""Groups in which some rollouts cheat, audited and accepted as a worker does it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from composer_web.core.artifacts import artifacts
from composer_web.policies.models import Policy
from composer_web.rollouts.dispatch import quarantine, services
from composer_web.rollouts.models import Group
from composer_web.runs.models import Run
from composer_web.runs.services import create_run, mark_running, record_version, start_run
from composer_web.tasks.models import Suite
from sandbox.harness.types import ToolCall
from tests.web.making import SMALL, claim, trajectory
from trainer.config import MonitorsConfig, RunConfig
from trainer.rollouts.audit import audit_group, quarantined, without
from trainer.rollouts.group import build_train_group
from trainer.toy.preset import toy_rl
from trainer.types import Trajectory, Turn

EXIT = (
    "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n@@ -1,1 +1,3 @@\n+import os\n+os._exit(0)\n def f(): return 1\n"
)
"""A patch that the rules find at once."""


def cheat(group: Group, sample: int, *, passed: bool, patch: str = EXIT) -> Trajectory:
    call = ToolCall(id="c0", name="write_file", arguments={"path": "m.py", "content": "import os\nos._exit(0)\n"})
    turn = Turn(index=0, text="{}", token_start=1, token_end=3, calls=(call,))
    return trajectory(group, sample, passed=passed).model_copy(update={"turns": (turn,), "patch": patch})


def finish(group: Group, cheats: dict[int, bool], *, size: int = 4) -> Group:
    """Accept a group as a worker does: `cheats` maps the samples that cheat to whether they passed; the others fail
    but the last one."""
    claimed = claim(group)
    group, held = claimed.group, claimed.held
    made = [
        cheat(group, s, passed=cheats[s]) if s in cheats else trajectory(group, s, passed=s == size - 1)
        for s in range(size)
    ]
    audited = audit_group(made, group.task_version.bundle)
    out = quarantined(audited, made, quarantine.monitors_of(group.run))
    config = toy_rl()
    whole = build_train_group(
        made, group_id=str(group.pk), prompt_index=group.prompt_index, config=config, dispatched_version=0
    )
    rest = without(whole, made, out, config) if out else whole
    graded = []
    for item in made:
        key = f"groups/{group.pk}/{held.token}/{item.sample}.json.zst"
        artifacts().put_model(key, item)
        graded.append(services.Graded(item, key))
    train_key = f"groups/{group.pk}/{held.token}/train.json.zst" if rest else ""
    if rest:
        artifacts().put_model(train_key, rest)
    audit = services.Audited(dict(enumerate(audited.findings)), out)
    assert services.accept(
        group=group, held=held, graded=graded, train_key=train_key, oldest_version=0, infra_errors=(), audit=audit
    )
    group.refresh_from_db()
    return group


@pytest.fixture
def wide(policy: Policy, make_suite: Callable[..., Suite]) -> Run:
    """A running run with groups of four, whose monitors look at the last eight rollouts."""
    make_suite()
    stage = SMALL.model_copy(update={"group_size": 4, "monitors": MonitorsConfig(pause_window=8)})
    run = create_run(config=RunConfig(name="wide", seed=3, stage=stage))
    start_run(run=run)
    mark_running(run=run, owner="trainer@test")
    record_version(run=run, version=0)
    return run


@pytest.fixture
def groups(wide: Run) -> list[Group]:
    services.pump(run_id=wide.pk)
    return list(Group.objects.filter(run=wide).order_by("prompt_index"))
