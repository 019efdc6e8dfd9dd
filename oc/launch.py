"""From a file, preset or template with changed fields to a configuration."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from oc.client import Client


class UsageError(Exception):
    """The command line asks for something that cannot be. The message says what to write instead."""


def starting(parser: argparse.ArgumentParser) -> None:
    """What `configuration` reads."""
    parser.add_argument("file", nargs="?", help="YAML, TOML or JSON; - reads standard input")
    parser.add_argument("--preset")
    parser.add_argument("--template")
    parser.add_argument("--set", action="append", default=[], metavar="stage.steps=5")


def configuration(client: Client, options: Any) -> dict[str, Any]:
    """Raises UsageError, ApiError (with the line of a wrong setting in a file)."""
    chosen = [name for name in ("file", "preset", "template") if getattr(options, name)]
    if len(chosen) != 1:
        raise UsageError("name one of: a file, --preset, --template")
    if options.file:
        try:
            text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{options.file} cannot be read: {error}") from error
        config = client.runs.read_text(text=text).config
    elif options.preset:
        config = _pick({one.key: one.config for one in client.runs.presets()}, options.preset, "preset")
    else:
        config = _pick({one.name: one.config for one in client.templates.list()}, options.template, "template")
    for word in options.set:
        path, separator, value = word.partition("=")
        if not separator:
            raise UsageError(f"--set {word!r}: write it as stage.steps=5")
        _assign(config, path.split("."), _value(value))
    return config


def _pick(known: dict[str, dict[str, Any]], name: str, noun: str) -> dict[str, Any]:
    if name not in known:
        raise UsageError(f"there is no {noun} {name!r}; there are: {', '.join(known) or 'none yet'}")
    return known[name]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _assign(config: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = config.get(name)
        if not isinstance(inner, dict):
            raise UsageError(f"--set: {name} is no group of settings")
        config = inner
    config[path[-1]] = value


def fields(words: list[str]) -> dict[str, Any]:
    """`stage.steps=20,40` → {"stage.steps": [20, 40]}. Raises UsageError."""
    found: dict[str, Any] = {}
    for word in words:
        name, separator, values = word.partition("=")
        if not separator or not values:
            raise UsageError(f"--vary {word!r}: write it as stage.steps=20,40")
        whole = _value(values)
        found[name] = whole if isinstance(whole, list) else [_value(part.strip()) for part in values.split(",")]
    return found
