"""Who asks, and where: login, whoami, status, settings, and every way in which no answer comes, without a traceback."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from django.utils import timezone

from composer_web.accounts.models import ApiToken, Project, User
from composer_web.accounts.services import create_token
from composer_web.runs.config_io import render
from composer_web.runs.models import Run
from opencomposer import Client
from opencomposer.app import main
from opencomposer.errors import SettingsError
from opencomposer.settings import Settings, load_settings, save_settings, settings_file
from tests.web.cli.support import Cli, connected, data, error
from tests.web.cli.test_client import address
from tests.web.making import SMALL
from trainer.config import RunConfig

__all__ = ["address"]  # fixture


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings."""
    for name in ("OPENCOMPOSER_URL", "OPENCOMPOSER_TOKEN", "OPENCOMPOSER_PROJECT", "OC_URL", "OC_TOKEN", "OC_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.django_db(transaction=True)
def test_login_keeps_a_token_that_works(
    address: str,
    home: Path,
    people: dict[str, User],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    token, secret = create_token(user=people["operator"], name="laptop", scopes=["operate"])
    monkeypatch.setattr("sys.stdin", io.StringIO("oc_wrong\n"))
    assert main(["login", address]) == 1
    assert "opencomposer login" in capsys.readouterr().err and not settings_file().exists()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{secret}\n"))
    assert main(["login", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["username"] == "operator"
    assert stat.S_IMODE(settings_file().stat().st_mode) == 0o600
    assert main(["whoami", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["username"], found["role"], found["project"]) == ("operator", "operator", "default")
    assert (found["token"]["name"], found["token"]["scopes"]) == ("laptop", ["operate"])
    assert secret not in json.dumps(found)
    assert main(["runs", "list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["small"]
    # expired: the API says so, and the command line says what to do
    ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(minutes=1))
    assert main(["runs", "list"]) == 1
    assert "run `opencomposer login`" in capsys.readouterr().err


def test_status_is_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer of a real server is read in test_runs; here one with a broken part."""
    checks = [
        {"name": "postgres", "ok": True, "message": "answers", "seconds": 0.01},
        {"name": "valkey", "ok": False, "message": "refused", "seconds": 1.0},
    ]
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json={"ok": False, "checks": checks}))
    out = io.StringIO()
    assert main(["status"], client=Client("http://127.0.0.1", "x", transport=transport), out=out) == 1
    shown = out.getvalue().splitlines()
    assert shown[0] == "http://127.0.0.1" and shown[1].split() == ["name", "ok", "message", "seconds"]
    assert "not working: valkey" in capsys.readouterr().err


@pytest.mark.django_db
def test_whoami_of_a_page_has_no_token(people: dict[str, User]) -> None:
    from django.test import Client as Web

    page = Web()
    page.force_login(people["viewer"])
    found = page.get("/api/v1/whoami").json()
    assert (found["username"], found["role"], found["token"]) == ("viewer", "viewer", None)


@pytest.mark.django_db
def test_a_wrong_token_or_address(draft: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "list"], client=connected("oc_wrong")) == 1
    assert "valid token" in capsys.readouterr().err

    def elsewhere(request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"Location": "http://elsewhere/"}, text="moved")

    def other(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"state": 3})

    client = Client("http://127.0.0.1", "secret", transport=httpx.MockTransport(elsewhere))
    assert main(["runs", "list", "--json"], client=client) == 3  # the token was not sent on
    assert error(capsys)["code"] == "unreachable"
    client = Client("http://127.0.0.1", "secret", transport=httpx.MockTransport(other))
    assert main(["runs", "get", "3", "--follow"], client=client) == 3
    assert "this client needs" in capsys.readouterr().err


def test_nothing_listens(home: Path, free_port: int) -> None:
    """As a user runs it: a program of its own, whose standard error has one line."""
    environment = {
        **os.environ,
        "XDG_CONFIG_HOME": str(home),
        "OPENCOMPOSER_URL": f"http://127.0.0.1:{free_port}",
        "OPENCOMPOSER_TOKEN": "x",
    }
    words = [sys.executable, "-m", "opencomposer", "runs", "list"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1 and f"127.0.0.1:{free_port} does not answer" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url = ", "cannot be read"),
        ("url = 3\n", "url: "),
        ('url = "ftp://host"\ntoken = "x"\n', "http:// or https://"),
        ('token = "x"\naddress = "http://host"\n', "address: "),
        ('url = "http://host"\n', "no token"),
    ],
)
def test_malformed_settings_name_the_field_and_the_remedy(
    home: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settings_file()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o600)
    assert main(["runs", "list", "--json"]) == 2
    found = error(capsys)
    assert found["code"] == "settings" and said in found["message"] and "opencomposer login" in found["message"]


def test_settings_come_from_the_environment_or_a_private_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="no token"):
        load_settings()
    path = save_settings(Settings(url="https://composer.example/", token='oc_"x\\', project="ours"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_settings() == Settings(url="https://composer.example", token='oc_"x\\', project="ours")
    monkeypatch.setenv("OPENCOMPOSER_TOKEN", "other")
    assert load_settings().token == "other"
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        load_settings()
    path.chmod(0o600)
    monkeypatch.setenv("OPENCOMPOSER_URL", "file:///etc/passwd")
    with pytest.raises(SettingsError, match="http://"):
        load_settings()


def test_old_variables_are_read_with_a_warning(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OC_TOKEN", "old")
    assert load_settings().token == "old"
    assert capsys.readouterr().err == "opencomposer: OC_TOKEN is deprecated; set OPENCOMPOSER_TOKEN instead\n"
    monkeypatch.setenv("OPENCOMPOSER_TOKEN", "new")
    assert load_settings().token == "new" and not capsys.readouterr().err


@pytest.mark.django_db
def test_members_come_and_go(line: Callable[[str, str], Cli]) -> None:
    cli = line("admin", "admin")
    data(cli("projects", "create", "ours", "Ours", "--json"))
    data(cli("members", "create", "ours", "viewer", "reviewer", "--json"))
    assert [one["username"] for one in data(cli("members", "list", "ours", "--json"))] == ["admin", "viewer"]
    assert data(cli("members", "delete", "ours", "viewer", "--json")) == {"removed": "viewer"}


@pytest.mark.django_db
def test_what_is_created_goes_to_the_project_that_is_named(
    draft: Run, line: Callable[[str, str], Cli], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = line("admin", "admin")
    data(cli("projects", "create", "other", "Other", "--json"))
    other = Project.objects.get(slug="other")
    file = tmp_path / "run.yaml"
    file.write_text(render(RunConfig(name="theirs", stage=SMALL), "yaml"))
    data(cli("runs", "create", str(file), "--project", "other", "--json"))
    assert Run.objects.get(name="theirs").project_id == other.pk
    assert [one["name"] for one in data(cli("runs", "list", "--project", "other", "--json"))] == ["theirs"]
    Project.objects.exclude(pk=other.pk).update(library=False)
    assert cli("runs", "create", str(file), "--project", "other", "--json")[0] == 1  # what no library shares
    assert error(capsys)["code"] in ("not_found", "invalid")
    assert cli("runs", "list", "--project", "none", "--json")[0] == 1
    assert "none" in error(capsys)["message"]
