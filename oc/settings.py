"""Where the product is, who asks and about what: OC_URL, OC_TOKEN, OC_PROJECT, else the configuration file."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8000"


class SettingsError(Exception):
    """The settings cannot be used. The message says which and what to do."""


@dataclass(frozen=True)
class Settings:
    """`project` is the short name of the one that calls are about; empty: as the server decides."""

    url: str
    token: str
    project: str = ""


def config_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "oc" / "config.toml"


def settings() -> Settings:
    """Raises SettingsError: no token, a file that others can read, a file that is no TOML."""
    kept = _kept(config_file())
    url = os.environ.get("OC_URL") or kept.get("url") or DEFAULT_URL
    token = os.environ.get("OC_TOKEN") or kept.get("token") or ""
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"the address {url!r} must begin with http:// or https://")
    if not token:
        raise SettingsError(
            "no token: make one on the tokens page or with `manage.py createtoken`, then `oc config` or OC_TOKEN"
        )
    return Settings(url.rstrip("/"), token, os.environ.get("OC_PROJECT") or kept.get("project") or "")


def _kept(path: Path) -> dict[str, str]:
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"{path} holds a token and others can read it: chmod 600 {path}")
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    return {name: str(value) for name, value in data.items()}


def keep(*, url: str, token: str) -> Path:
    """Write the configuration file, readable by its owner alone."""
    path = config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("".join(f'{name} = "{_escaped(value)}"\n' for name, value in (("url", url), ("token", token))))
    staged.replace(path)
    return path


def _escaped(text: str) -> str:
    if not text.isprintable():
        raise SettingsError("an address and a token are one line of printable characters")
    return text.replace("\\", "\\\\").replace('"', '\\"')
