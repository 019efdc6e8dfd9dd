"""Run configurations on a command line: from a file, preset or template, with changed fields."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opencomposer.client import Client
from opencomposer.errors import UsageError
from opencomposer.files import assignment, json_value, read_text

ConfigFile = Annotated[str | None, typer.Argument(metavar="[FILE]", help="YAML, TOML or JSON; - is standard input.")]
Preset = Annotated[str | None, typer.Option(help="Start from a preset; `presets list` names them.")]
Template = Annotated[str | None, typer.Option(help="Start from a template; `templates list` names them.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="stage.steps=5", help="Change a field; may be repeated.")
]


def configuration(
    client: Client, *, file: str | None, preset: str | None, template: str | None, changes: list[str] | None
) -> dict[str, Any]:
    """Raises UsageError, and ApiError that names the line of a wrong setting in a file."""
    if len([one for one in (file, preset, template) if one]) != 1:
        raise UsageError("name one of: a file, --preset, --template")
    if file:
        config = client.post("/runs/read", {"text": read_text(file)})["config"]
    elif preset:
        config = _pick({one["key"]: one["config"] for one in client.get("/runs/presets")}, preset, "preset")
    else:
        found = {one["name"]: one["config"] for one in client.get("/templates")}
        config = _pick(found, template or "", "template")
    for word in changes or []:
        path, value = assignment(word)
        assign(config, path.split("."), value)
    return dict(config)


def varied(words: list[str]) -> dict[str, list[Any]]:
    """`stage.steps=20,40` → {"stage.steps": [20, 40]}. Raises UsageError."""
    found: dict[str, list[Any]] = {}
    for word in words:
        name, separator, values = word.partition("=")
        if not separator or not values:
            raise UsageError(f"--vary {word!r}: write it as stage.steps=20,40")
        whole = json_value(values)
        found[name] = whole if isinstance(whole, list) else [json_value(part.strip()) for part in values.split(",")]
    return found


def _pick(known: dict[str, dict[str, Any]], name: str, noun: str) -> dict[str, Any]:
    if name not in known:
        raise UsageError(f"there is no {noun} {name!r}; there are: {', '.join(known) or 'none yet'}")
    return known[name]


def assign(config: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a field of nested settings. Raises UsageError."""
    for name in path[:-1]:
        inner = config.get(name)
        if not isinstance(inner, dict):
            raise UsageError(f"--set: {name} is not a group of settings")
        config = inner
    config[path[-1]] = value
