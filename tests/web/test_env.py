"""Settings: variables before the supervisor's file before defaults."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from composer_web.env import Env, database_settings


def test_variables_win_over_the_supervisors_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "env"
    file.write_text("OPENCOMPOSER_PORT=1234\nOPENCOMPOSER_REDIS_URL=redis://file/0\n")
    monkeypatch.setenv("OPENCOMPOSER_REDIS_URL", "redis://variable/0")
    settings = Env(_env_file=file)  # type: ignore[call-arg]
    assert (settings.port, settings.redis_url) == (1234, "redis://variable/0")


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
