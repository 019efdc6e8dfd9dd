"""Open every run, rollout, policy and suite of the installation that the settings name, and print what came as JSON.

A process of its own, because Django reads its settings once. `tests/platform/test_old_installation.py` starts it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import django


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
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
