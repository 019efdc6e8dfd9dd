"""Reference of the JSON API: every operation of the description that the product serves at /api/v1/openapi.json."""

from __future__ import annotations

import functools
import os
from typing import Any

from scripts.docs.markdown import GENERATED, code, plain, table
from scripts.docs.schema import bounds_of, properties, type_of


def page() -> str:
    text = [
        "# JSON API",
        GENERATED.format(source="the operations of the API"),
        "[Using the API](../guides/api.md) explains tokens, errors and lists. The same description is at "
        "`/api/v1/openapi.json`, and `/api/v1/docs` tries it in the browser. Bodies and answers are [schemas](schemas.md).",
    ]
    for tag, operations in by_tag(described()).items():
        text.append(f"## {tag}")
        for method, path, one in operations:
            text.append(operation(method, path, one))
    return "\n\n".join(filter(None, text)) + "\n"


def schemas_page() -> str:
    text = [
        "# Schemas of the JSON API",
        GENERATED.format(source="the schemas of the API"),
        "Bodies and answers of the [operations](api.md).",
    ]
    for name, one in sorted(described()["components"]["schemas"].items()):
        text.append(f"## {name}")
        text.append(plain(one.get("description", "")))
        text.append(properties(one, near) if one.get("properties") else f"Type: {type_of(one, near)}.")
    return "\n\n".join(filter(None, text)) + "\n"


@functools.cache
def described() -> dict[str, Any]:
    """The description of the API. It needs Django's settings, and no service."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")
    django.setup()
    from composer_web.api_root import api

    schema: dict[str, Any] = api.get_openapi_schema()
    return schema


def by_tag(schema: dict[str, Any]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    found: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in schema["paths"].items():
        for method, one in methods.items():
            found.setdefault(one["tags"][0], []).append((method.upper(), path, one))
    return found


def near(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def link(name: str) -> str:
    return f"[{name}](schemas.md#{name.lower()})"


def operation(method: str, path: str, one: dict[str, Any]) -> str:
    parts = [
        f"### {one['operationId']}",
        f"`{method} {path}`",
        plain(one.get("description") or one.get("summary", "")),
    ]
    rows = []
    for given in one.get("parameters", ()):
        limits = bounds_of(given["schema"])
        kind = type_of(given["schema"], link)
        default = "required" if given.get("required") else code(given["schema"].get("default", ""))
        meaning = given.get("description") or given["schema"].get("description", "")
        rows.append(
            [code(given["name"]), given["in"], f"{kind}, {limits}" if limits else kind, default, plain(meaning)]
        )
    if rows:
        parts.append(table(["Parameter", "In", "Type", "Default", "Meaning"], rows))
    for kind, body in one.get("requestBody", {}).get("content", {}).items():
        inline = body["schema"]
        parts.append(f"Body ({kind}): {type_of(inline, link)}.")
        if inline.get("properties"):
            parts.append(properties(inline, link))
    answers = []
    for status, answer in one["responses"].items():
        kinds = [type_of(body.get("schema", {}), link) for body in answer.get("content", {}).values()]
        answers.append(f"{'refusal' if status == 'default' else status}: {' or '.join(kinds) or 'no body'}")
    parts.append(f"Answers: {'; '.join(answers)}.")
    return "\n\n".join(filter(None, parts))
