"""Where a command takes a configuration from: a file, a preset or a template, with single fields set on top."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from composer_web.runs import services, templates, text
from composer_web.runs.presets import PRESETS, preset
from trainer.config import RunConfig


def add_source(parser: ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", help="YAML, TOML or JSON; - reads it from standard input")
    parser.add_argument("--preset", choices=[p.key for p in PRESETS])
    parser.add_argument("--template", help="name of a template of the team")
    parser.add_argument(
        "--set", action="append", default=[], metavar="stage.steps=5", help="change a field (JSON value or text)"
    )


def configuration(options: dict[str, Any]) -> RunConfig:
    """Raises UserError, CommandError."""
    changes = [_change(word) for word in options["set"]]
    if options["preset"]:
        chosen = preset(options["preset"])
        assert chosen is not None, "argparse knows the presets"
        data = chosen.config.model_dump(mode="json")
    elif options["template"]:
        data = templates.by_name(options["template"]).config
    elif options["file"]:
        try:
            written = sys.stdin.read() if options["file"] == "-" else Path(options["file"]).read_text()
        except (OSError, ValueError) as error:
            raise CommandError(f"{options['file']} cannot be read: {error}") from error
        if not changes:
            return text.load(written)
        data = text.read(written).data
    else:
        raise CommandError("name a file, a --preset or a --template")
    for path, value in changes:
        _assign(data, path, value)
    return services.parse_config(data)


def _change(word: str) -> tuple[list[str], Any]:
    path, separator, value = word.partition("=")
    if not separator:
        raise CommandError(f"--set {word!r}: write it as stage.steps=5")
    try:
        return path.split("."), json.loads(value)
    except ValueError:
        return path.split("."), value


def _assign(data: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise CommandError(f"--set: {name} is not an object")
    data[path[-1]] = value
