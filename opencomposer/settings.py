"""Address, token and project: from the environment, else from the file that `opencomposer login` writes."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opencomposer.errors import SettingsError

DEFAULT_URL = "http://127.0.0.1:8800"
RETIRED = {"OPENCOMPOSER_URL": "OC_URL", "OPENCOMPOSER_TOKEN": "OC_TOKEN", "OPENCOMPOSER_PROJECT": "OC_PROJECT"}
"""Environment variables and the names that are still read for one release, with a warning."""


class Settings(BaseModel):
    """`project` is the short name of the project that commands concern; empty: the server decides."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(pattern=r"^https?://[^/\s]")] = DEFAULT_URL
    token: str = ""
    project: str = ""


def settings_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "opencomposer" / "config.toml"


def load_settings() -> Settings:
    """Settings of this user. Raises SettingsError when there is no token, when others can read the file, and when a value
    is malformed."""
    path = settings_file()
    try:
        kept = _read(path)
        environment = {
            name.removeprefix("OPENCOMPOSER_").lower(): value for name in RETIRED if (value := _environment(name))
        }
        found = Settings.model_validate({**kept, **environment})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise SettingsError(
            f"{name}: {first['msg']} (found {first['input']!r}): correct OPENCOMPOSER_{name.upper()} or {path}, "
            "or run `opencomposer login URL`; an address begins with http:// or https://"
        ) from error
    if not found.token:
        raise SettingsError(
            "no token: make one on the Tokens page or with `manage.py createtoken`, then run `opencomposer login`, "
            "or set OPENCOMPOSER_TOKEN"
        )
    return found.model_copy(update={"url": found.url.rstrip("/")})


def save_settings(settings: Settings) -> Path:
    """Write the settings file, readable by its owner alone."""
    path = settings_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        # A JSON string of ASCII is a TOML basic string.
        file.write("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.model_dump().items()))
    staged.replace(path)
    return path


def _environment(name: str) -> str:
    if given := os.environ.get(name):
        return given
    old = RETIRED[name]
    value = os.environ.get(old, "")
    if value:
        sys.stderr.write(f"opencomposer: {old} is deprecated; set {name} instead\n")
    return value


def _read(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"{path} holds a token and other users can read it: chmod 600 {path}")
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read ({error}): correct it, or run `opencomposer login`") from error
