"""Settings: variables before the supervisor's file before defaults."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from kombu import Connection

from composer_web.env import REPOSITORY, Env, WrongSetting, database_settings, env
from composer_web.env.settings import accept_old_names


def test_variables_win_over_the_supervisors_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "env"
    file.write_text("OPENCOMPOSER_PORT=1234\nOPENCOMPOSER_REDIS_URL=redis://file/0\n")
    monkeypatch.setenv("OPENCOMPOSER_REDIS_URL", "redis://variable/0")
    settings = Env(_env_file=file)  # type: ignore[call-arg]
    assert (settings.port, settings.redis_url) == (1234, "redis://variable/0")


@pytest.mark.parametrize(("urls", "engine"), [("", "embedded"), ("http://gpu1:8000", "vllm")])
def test_auto_is_an_engine_for_every_process(monkeypatch: pytest.MonkeyPatch, urls: str, engine: str) -> None:
    monkeypatch.setenv("OPENCOMPOSER_INFERENCE_ENGINE", "auto")
    monkeypatch.setenv("OPENCOMPOSER_VLLM_URLS", urls)
    settings = Env()
    assert settings.inference_engine == "auto" and settings.engine.engine == engine
    assert f"{engine} (chosen by auto, because OPENCOMPOSER_VLLM_URLS names" in str(settings.engine)


def test_a_socket_folder_and_a_host() -> None:
    socket = database_settings("postgresql://me@/name?host=/run/pg&port=5433")
    assert (socket["HOST"], socket["PORT"], socket["USER"], socket["NAME"]) == ("/run/pg", "5433", "me", "name")
    host = database_settings("postgresql://me:p%40ss@db:5432/name")
    assert (host["HOST"], host["PORT"], host["PASSWORD"]) == ("db", "5432", "p@ss")


@pytest.mark.parametrize("url", ["sqlite:///x", "postgresql://host:5432/", "nonsense"])
def test_a_wrong_address_shows_the_right_form(url: str) -> None:
    with pytest.raises(ValueError, match="must look like postgresql://"):
        database_settings(url)


def test_a_signing_key_is_made_once_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENCOMPOSER_SECRET_KEY", raising=False)
    settings = Env(data=tmp_path, secret_key="")
    key = settings.secret()
    assert len(key) > 50 and settings.secret() == key
    assert stat.S_IMODE((tmp_path / "run" / "secret_key").stat().st_mode) == 0o600


@pytest.fixture
def unread() -> Iterator[None]:
    """Settings are read once a process: read anew in the test, and again as they were after it."""
    env.cache_clear()
    yield
    env.cache_clear()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PORT", "abc", r"OPENCOMPOSER_PORT: .*valid integer.*found 'abc'"),
        (
            "MIRRORS",
            "csv=there",
            "OPENCOMPOSER_MIRRORS: must be kind=where with tensorboard, mlflow, wandb.*'csv=there'",
        ),
        ("MIRRORS", "wandb=a,wandb=b", "OPENCOMPOSER_MIRRORS: names wandb twice"),
        ("PORT", "0", "OPENCOMPOSER_PORT: .*greater than or equal to 1"),
        ("INFERENCE_ENGINE", "sglang", "OPENCOMPOSER_INFERENCE_ENGINE: .*'embedded', 'vllm' or 'auto'.*found 'sglang'"),
        ("INFERENCE_URL", "vllm:8000", "OPENCOMPOSER_INFERENCE_URL: must look like http://host:port$"),
        ("REDIS_URL", "http://:secret@x", "OPENCOMPOSER_REDIS_URL: must look like redis://host:port$"),
        (
            "REDIS_URL",
            "redis://:12/secret@valkey:6379/0",
            "REDIS_URL: must look like redis://host:port; .*percent-encoded",
        ),
        (
            "REDIS_URL",
            "redis://:secret#x@valkey:6379/0",
            "REDIS_URL: must look like redis://host:port; .*percent-encoded",
        ),
        ("DATABASE_URL", "postgresql://u:secret/x@db:5432/y", "DATABASE_URL: must look like .*percent-encoded"),
        ("DATABASE_URL", "postgresql://u:1/secret@db:5432/y", "DATABASE_URL: must look like .*percent-encoded"),
        ("DATABASE_URL", "postgresql://u:secret?x@db:5432/y", "DATABASE_URL: must look like .*percent-encoded"),
        ("INFERENCE_URL", "http://u:secret@vllm:8000", "INFERENCE_URL: must look like .* without a user or password"),
        ("JUDGE_URL", "http://u:secret@judge", "OPENCOMPOSER_JUDGE_URL: must look like .* without a user or password"),
        ("EMAIL_URL", "smtp://u:secret/x@mail:587", "OPENCOMPOSER_EMAIL_URL: must look like smtp://.*percent-encoded"),
        ("EMAIL_URL", "imap://u:secret@mail", "OPENCOMPOSER_EMAIL_URL: must look like smtp://"),
        ("MIRRORS", "csv=http://u:secret@there", "OPENCOMPOSER_MIRRORS: must be kind=where .*csv=http://…@there"),
        (
            "TRUSTED_PROXIES",
            "10.0.0.0/8,proxy",
            "OPENCOMPOSER_TRUSTED_PROXIES: must be addresses or networks .*'proxy'",
        ),
        ("TRUSTED_PROXIES", "10.0.0.1/8", "OPENCOMPOSER_TRUSTED_PROXIES: .*10.0.0.1/8 has host bits set"),
        ("DATABASE_URL", "mysql://u:secret@x/y", "OPENCOMPOSER_DATABASE_URL: must look like postgresql://"),
        ("WEIGHT_STORE", "bucket/weights", "OPENCOMPOSER_WEIGHT_STORE: must look like s3://bucket/prefix, or be empty"),
        (
            "ARTIFACT_STORE",
            "/mnt/x",
            "OPENCOMPOSER_ARTIFACT_STORE: must look like s3://bucket/prefix.*<data>/artifacts",
        ),
        ("IO_THREAD", "4", r"OPENCOMPOSER_IO_THREAD is no setting; did you mean OPENCOMPOSER_IO_THREADS\?"),
    ],
)
def test_a_wrong_setting_ends_the_process_in_one_line(
    unread: None, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(f"OPENCOMPOSER_{name}", value)
    with pytest.raises(WrongSetting, match=words) as stop:
        env()
    assert "secret" not in str(stop.value)


def test_an_old_name_is_accepted_with_a_warning(unread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENCOMPOSER_ROLLOUT_CONCURRENCY", raising=False)
    variables = {"OPENCOMPOSER_EPISODES": "7"}
    with pytest.warns(DeprecationWarning, match="set OPENCOMPOSER_ROLLOUT_CONCURRENCY"):
        accept_old_names(variables)
    assert variables["OPENCOMPOSER_ROLLOUT_CONCURRENCY"] == "7"
    monkeypatch.setenv("OPENCOMPOSER_EPISODES", "7")
    monkeypatch.setenv("OPENCOMPOSER_ROLLOUT_CONCURRENCY", "8")
    with pytest.raises(WrongSetting, match="both are set; unset OPENCOMPOSER_EPISODES"):
        env()


ODD = "p/a#b?c%d%40e@f:g"
"""A password of characters that mean something in an address."""


def test_a_password_by_itself_may_have_any_character(unread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, url in {"DATABASE": "postgresql://oc@db:5432/name", "REDIS": "rediss://valkey:6379/0"}.items():
        monkeypatch.setenv(f"OPENCOMPOSER_{name}_URL", url)
        monkeypatch.setenv(f"OPENCOMPOSER_{name}_PASSWORD", ODD)
    settings = env()
    found = database_settings(settings.database_url)
    assert (found["USER"], found["PASSWORD"], found["HOST"], found["NAME"]) == ("oc", ODD, "db", "name")
    given = redis.Redis.from_url(settings.redis_url).connection_pool.connection_kwargs
    assert (given["password"], given["host"], given["db"]) == (ODD, "valkey", 0)
    broker = Connection(settings.redis_url)
    assert (broker.password, broker.hostname, broker.as_uri()) == (ODD, "valkey", "rediss://:**@valkey:6379/0")
    assert ODD not in repr(settings) and "p%2Fa" not in repr(settings)


def test_a_password_is_given_once(unread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCOMPOSER_REDIS_URL", "redis://:secret@valkey:6379/0")
    monkeypatch.setenv("OPENCOMPOSER_REDIS_PASSWORD", "secret")
    with pytest.raises(WrongSetting, match="OPENCOMPOSER_REDIS_PASSWORD: the address has a password already") as stop:
        env()
    assert "secret" not in str(stop.value)


def test_names_of_other_parts_are_left_alone(unread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCOMPOSER_THREADS", "2")
    monkeypatch.setenv("OPENCOMPOSER_SOMETHING_ELSE", "x")
    env()


def test_weights_of_runs_lie_below_the_chosen_store(unread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from composer_web.runs.models import Run
    from composer_web.runs.paths import weights_folder
    from composer_web.system.health import check_weights

    monkeypatch.setenv("OPENCOMPOSER_WEIGHT_STORE", "")
    assert weights_folder(Run(pk=7)) == f"{env().data}/weights/run-7"
    env.cache_clear()
    monkeypatch.setenv("OPENCOMPOSER_WEIGHT_STORE", "s3://policies/team-a/")
    assert weights_folder(Run(pk=7)) == "s3://policies/team-a/run-7"
    assert check_weights()[1] == "runs publish to s3://policies/team-a"


def test_the_command_line_shows_that_line_and_no_trace() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "health"],
        cwd=REPOSITORY,
        env={**os.environ, "OPENCOMPOSER_PORT": "abc"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "OPENCOMPOSER_PORT" in done.stderr
