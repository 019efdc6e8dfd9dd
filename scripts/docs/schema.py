"""Reads JSON schemas (pydantic's and OpenAPI's): the type of a property in words, its bounds, its default."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from scripts.docs.markdown import code, plain, table

Schema = Mapping[str, Any]
Link = Callable[[str], str]
"""Name of a component → Markdown link to where the page describes it."""

BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
LENGTHS = {"minLength": "≥", "maxLength": "≤", "minItems": "≥", "maxItems": "≤"}


def type_of(schema: Schema, link: Link) -> str:
    """`integer or null`, `list of RunOut`, `"adamw", "muon"`."""
    if "$ref" in schema:
        return link(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_of(one, link) for one in schema[key]))
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}), link)}"
    extra = schema.get("additionalProperties")
    if schema.get("type") == "object" and isinstance(extra, Mapping) and extra:
        return f"object of {type_of(extra, link)}"
    return str(schema.get("type", "any")) + (f" ({schema['format']})" if "format" in schema else "")


def bounds_of(schema: Schema) -> str:
    """`≥ 0, ≤ 1`. A nullable number has its bounds one level down."""
    found = [f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if key in schema]
    found += [f"length {sign} {schema[key]}" for key, sign in LENGTHS.items() if key in schema]
    for one in schema.get("anyOf", ()):
        found += filter(None, [bounds_of(one)])
    return ", ".join(found)


def default_of(schema: Schema) -> str:
    """The default as in JSON, so that an empty text is visible; `auto` for a setting that is derived."""
    if schema.get("auto") and schema.get("default") in (0, "auto"):
        return code("auto")
    return code(json.dumps(schema["default"], ensure_ascii=False)) if "default" in schema else ""


def properties(schema: Schema, link: Link, *, defaults: bool = True) -> str:
    """A table of an object's properties. Input schemas show defaults and bounds; output schemas have none."""
    required = set(schema.get("required", ()))
    rows = []
    for name, one in schema.get("properties", {}).items():
        kind, limits = type_of(one, link), bounds_of(one)
        row = [code(name), f"{kind}, {limits}" if limits else kind]
        if defaults:
            row.append("required" if name in required else default_of(one))
        rows.append([*row, plain(one.get("description", ""))])
    head = ["Name", "Type", "Default", "Meaning"] if defaults else ["Name", "Type", "Meaning"]
    return table(head, rows)
