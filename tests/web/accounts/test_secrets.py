"""Planted secrets are in nothing that commands print and in nothing that pages show."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.test import Client

from composer_web.accounts.models import User
from composer_web.env import REPOSITORY, Env, env

pytestmark = pytest.mark.django_db
MARK = "hunter2"
ODD = f"{MARK}/a#b?c%d"
"""A secret with every character that means something in an address."""
PLANTED = {
    "SECRET_KEY": ODD,
    "SECRET_KEY_FALLBACKS": f"{ODD}1,{ODD}2",
    "DATABASE_PASSWORD": ODD,
    "REDIS_PASSWORD": ODD,
    "INSTALLER_KEY": ODD,
    "JUDGE_KEY": ODD,
    "OIDC_CLIENT_SECRET": ODD,
    "EMAIL_URL": f"smtp://me:{MARK}@mail:587",
}
COMMANDS = """
from celery.bin.celery import celery
from django.core.management import execute_from_command_line

celery(["-A", "composer_web", "report"], standalone_mode=False)
print("reported", flush=True)
execute_from_command_line(["manage.py", "health"])
"""
"""Both in one process: its start is most of what they take."""


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_no_command_and_no_page_prints_a_secret(
    free_port: int, client: Client, people: dict[str, User], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither service answers, so that commands tell what they tried."""
    told = {f"OPENCOMPOSER_{name}": value for name, value in PLANTED.items()} | {
        "OPENCOMPOSER_DATABASE_URL": f"postgresql://oc@127.0.0.1:{free_port}/oc",
        "OPENCOMPOSER_REDIS_URL": f"redis://127.0.0.1:{free_port}/0",
    }
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=REPOSITORY,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    report, _, health = done.stdout.partition("reported\n")
    assert "software ->" in report and "FAIL" in health, done.stderr
    assert MARK not in done.stdout + done.stderr
    for name, value in PLANTED.items():
        if not name.endswith("_PASSWORD"):  # those of the services in use stay
            monkeypatch.setattr(env(), name.lower(), value)
    client.force_login(people["admin"])
    for path in ("/system/", "/api/v1/health", "/people/", "/account/sessions/", "/api/v1/openapi.json"):
        answer = client.get(path)
        assert answer.status_code == 200 and MARK not in answer.content.decode(), path


def test_no_setting_that_holds_a_secret_is_shown() -> None:
    """A new one fails here until it is kept out of what is printed."""
    words = ("password", "secret", "_key", "token")
    for name, field in Env.model_fields.items():
        if any(word in name for word in words) or name in ("database_url", "redis_url", "email_url"):
            assert field.repr is False, name
