"""Open every run, rollout, policy and suite of the installation that the settings name, and print what came as JSON.

A process of its own, because Django reads its settings once. `tests/platform/test_old_installation.py` starts it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import django


def told_by_triggers() -> dict[str, Any]:
    """What triggers do to a new run, its group and an audit entry. Nothing of it stays."""
    from django.db import IntegrityError, transaction

    from composer_web.accounts.models import Project
    from composer_web.accounts.services import audit
    from composer_web.rollouts.models import Group, Rollout
    from composer_web.runs.models import Run
    from tests.support import triggers

    def refused(rows: Any, **change: Any) -> bool:
        assert rows.exists()
        try:
            with transaction.atomic():
                rows.update(**change)
        except IntegrityError:
            return True
        return False

    with transaction.atomic():
        other = Project.objects.create(slug="other", name="Other")
        old = Run.objects.earliest("pk")
        run = Run.objects.create(
            name="new", kind=old.kind, config=old.config, policy_in=old.policy_in, steps_total=1, project=other
        )
        version = Rollout.objects.earliest("pk").group.task_version
        group = Group.objects.create(run=run, task_version=version, prompt_index=0, size=1)
        group.refresh_from_db()
        entry = audit(actor=None, action="run.create")
        entry.refresh_from_db()
        changes = {
            "project": refused(Run.objects.filter(pk=run.pk), project=1),
            "history": refused(run.transitions.all(), reason="other"),
            "verdict": refused(Rollout.objects.filter(state="graded"), artifact_key="other"),
            "version": refused(type(version).objects.filter(pk=version.pk), number=99),
        }
        found = {
            "not_installed": triggers.not_installed(),
            "undeclared": sorted(triggers.undeclared()),
            "states": list(run.transitions.values_list("to_state", flat=True)),
            "in_project": group.project_id == other.pk,
            "noted": [change["row"] for change in entry.changes],
            "refused": changes,
        }
        transaction.set_rollback(True)
    return found


def main() -> None:
    django.setup()
    from django.test import Client
    from django.test.utils import setup_test_environment

    from composer_web.accounts.models import User
    from composer_web.policies.models import Policy
    from composer_web.rollouts.models import Rollout
    from composer_web.rollouts.selectors import trajectory
    from composer_web.runs.models import Run
    from composer_web.tasks.models import Suite

    setup_test_environment()
    client = Client()
    client.force_login(User.objects.filter(role="admin").earliest("pk"))
    found: dict[str, Any] = {"counts": {}, "configurations": {}, "curves": {}, "pages": {}, "turns": 0}
    for model in (Run, Rollout, Policy, Suite):
        found["counts"][model.__name__] = model._default_manager.count()

    def opened(path: str) -> None:
        answer = client.get(path)
        found["pages"][path] = answer.status_code

    for run in Run.objects.order_by("pk"):
        found["configurations"][run.pk] = run.configuration.model_dump(mode="json")
        opened(f"/runs/{run.pk}/")
        opened(f"/api/v1/runs/{run.pk}")
        answer = client.get(f"/api/v1/runs/{run.pk}/metrics")
        found["pages"][f"/api/v1/runs/{run.pk}/metrics"] = answer.status_code
        found["curves"][run.pk] = answer.json()["names"]
    for rollout in Rollout.objects.order_by("pk"):
        opened(f"/rollouts/{rollout.pk}/")
        found["turns"] += len(trajectory(rollout).turns) if rollout.artifact_key else 0
    for policy in Policy.objects.order_by("pk"):
        opened(f"/policies/{policy.name}/")
    for suite in Suite.objects.order_by("pk"):
        opened(f"/suites/{suite.name}/")
    for path in (
        "/",
        "/runs/",
        "/rollouts/",
        "/evaluations/",
        "/tasks/",
        "/policies/",
        "/findings/",
        "/gateway/sessions/",
        "/audit/",
    ):
        opened(path)
    found["triggers"] = told_by_triggers()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
