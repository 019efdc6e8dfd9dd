"""Conversion of a configuration to YAML or TOML and back, for files in git and pasting into the form.

The text contains every setting, so that its meaning does not change with the defaults. TOML has no null: as in the
form, an empty string stands for "none" in optional fields. JSON is read as YAML. Errors name the field and the line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import tomli_w
import yaml

from composer_web.core.errors import UserError
from composer_web.runs.launch.forms import SCHEMA
from composer_web.runs.services import parse_config
from trainer.config import RunConfig

Format = Literal["yaml", "toml"]
MAX_CHARACTERS = 65_536
DEEPEST = 12
MIME: dict[Format, str] = {"yaml": "application/yaml", "toml": "application/toml"}


@dataclass(frozen=True)
class Written:
    """Parsed text with the line number (from 1) of each field."""

    data: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)


def render(config: RunConfig, form: Format) -> str:
    """Text with every setting, in schema order."""
    data = config.model_dump(mode="json")
    if form == "yaml":
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return tomli_w.dumps(_filled(data))


def _filled(data: Mapping[str, Any]) -> dict[str, Any]:
    """Replace None with the empty string."""
    return {
        key: _filled(value) if isinstance(value, Mapping) else "" if value is None else value
        for key, value in data.items()
    }


def load(text: str) -> RunConfig:
    """Parse a configuration from YAML, TOML or JSON. Raises UserError with one message per invalid field."""
    written = read(text)
    try:
        return parse_config(written.data)
    except UserError as error:
        fields = {path: f"{_place(written, path)}{message}" for path, message in error.fields.items()}
        first = next(iter(fields))
        raise UserError(first, f"{_place(written, first)}{error.message}", fields=fields) from error


def _place(written: Written, path: str) -> str:
    """`line 7: ` of the field, or of its nearest enclosing table. Empty if the text contains neither."""
    while path:
        if path in written.lines:
            return f"line {written.lines[path]}: "
        path = path.rpartition(".")[0]
    return ""


def read(text: str) -> Written:
    """Parse the text without checking any setting. Raises UserError naming the line."""
    if len(text) > MAX_CHARACTERS:
        raise UserError("text", f"the text has {len(text)} characters; a configuration has at most {MAX_CHARACTERS}")
    if not text.strip():
        raise UserError("text", "the text is empty; paste a configuration in YAML, TOML or JSON")
    if "\x00" in text:
        raise UserError("text", "the text holds a NUL character: it is no configuration")
    return _read_toml(text) if looks_like_toml(text) else _read_yaml(text)


TOML_START = re.compile(r"""^\s*(\[[^\]\n]*\]\s*(#.*)?$|[\w."'-]+\s*=)""")


def looks_like_toml(text: str) -> bool:
    """Decide by the first non-blank, non-comment line."""
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return bool(TOML_START.match(first))


# --- TOML -------------------------------------------------------------------------------------------------------


def _read_toml(text: str) -> Written:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError("text", f"not TOML: {error}") from error
    except RecursionError as error:
        raise UserError("text", "not a configuration: lists within lists without end") from error
    return Written(_emptied(data), _toml_lines(text))


def _emptied(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Replace the empty string with None in optional fields."""
    stage = data.get("stage")
    kind = stage.get("kind", "") if isinstance(stage, Mapping) else ""

    def walk(table: Mapping[str, Any], path: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in table.items():
            name = f"{path}{key}"
            known = SCHEMA.by_name.get(name.replace("stage.", f"stage.{kind}.", 1))
            if isinstance(value, Mapping):
                out[key] = walk(value, f"{name}.")
            else:
                out[key] = None if value == "" and known is not None and known.optional else value
        return out

    return walk(data, prefix)


HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
KEY = re.compile(r"""^\s*([\w."' -]+?)\s*=""")


def _toml_lines(text: str) -> dict[str, int]:
    """Line of each dotted key. Lines inside a multi-line string may be mistaken for keys; they only locate errors."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            table = _dotted(header.group(1))
            lines.setdefault(table, number)
        elif key := KEY.match(line):
            lines.setdefault(f"{table}.{_dotted(key.group(1))}".lstrip("."), number)
    return lines


def _dotted(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


# --- YAML and JSON ----------------------------------------------------------------------------------------------


class _Plain(yaml.SafeLoader):
    """YAML without dates: `2026-01-01` stays a string."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _read_yaml(text: str) -> Written:
    try:
        _bounded(text)
        loader = _Plain(text)
        node = loader.get_single_node()
        written = Written({})
        data = _value(loader, node, "", written.lines) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UserError("text", f"{where}not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError("text", f"not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise UserError("text", "line 1: expected name, policy, seed and stage, each on a line as `name: value`")
    return Written(data, written.lines)


def _bounded(text: str) -> None:
    """Reject input of unbounded size: deep nesting, and aliases, a few lines of which expand to gigabytes."""
    depth = 0
    for event in yaml.parse(text, Loader=_Plain):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise UserError("text", f"line {line}: aliases (*{event.anchor}) are not used here; write the value again")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise UserError("text", f"line {line}: nested deeper than any configuration ({DEEPEST} levels)")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _value(loader: _Plain, node: yaml.Node, path: str, lines: dict[str, int]) -> Any:
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node)) if isinstance(key_node, yaml.ScalarNode) else ""
            line = key_node.start_mark.line + 1
            name = f"{path}.{key}".lstrip(".")
            if not key:
                raise UserError("text", f"line {line}: a setting's name is plain text")
            if key in found:
                raise UserError(name, f"line {line}: {name} is set twice, first on line {lines[name]}")
            lines[name] = line
            found[key] = _value(loader, value_node, name, lines)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, path, lines) for item in node.value]
    value = loader.construct_object(node)
    if not isinstance(value, Hashable) or not isinstance(value, str | int | float | bool | type(None)):
        raise UserError(path or "text", f"line {node.start_mark.line + 1}: {path} is no plain value")
    return value
