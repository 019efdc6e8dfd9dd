"""Reference of a run's configuration (`trainer.config`) and of the environment variables (`composer_web.env`)."""

from __future__ import annotations

from typing import Any

from scripts.docs.markdown import GENERATED, code, plain, table
from scripts.docs.schema import bounds_of, default_of, properties, type_of

STAGES = ("RLConfig", "SFTConfig", "MidtrainConfig")


def page() -> str:
    from trainer.config import RunConfig
    from trainer.config.renamed import RENAMED

    schema: dict[str, Any] = RunConfig.model_json_schema()
    parts = schema["$defs"]
    found = places(parts)
    text = [
        "# Configuration of a run",
        GENERATED.format(source="`trainer/config/`"),
        "One schema describes a run. The form, the API, the command line and the trainer all read it. Write it as YAML, "
        "TOML or JSON: `opencomposer runs create run.toml --start`. `opencomposer presets list` shows complete examples.",
        "A key's full name is its path, as in `stage.sampling.temperature`. An error names that path.",
        "## RunConfig",
        plain(schema.get("description", "")),
        properties(schema, link),
    ]
    for name, at in found.items():
        where = ", ".join(f"{code(path)} of {' and '.join(kinds)}" for path, kinds in at.items())
        part = parts[name]
        text += [f"## {name}", f"At {where}.", plain(part.get("description", "")), properties(part, link)]
    renamed = [(part, code(old), code(new)) for part, names in RENAMED.items() for old, new in names.items()]
    text += [
        "## Renamed keys",
        "The old names are accepted until release 0.2, with a deprecation warning.",
        table(["Part", "Old key", "New key"], renamed),
    ]
    return "\n\n".join(filter(None, text)) + "\n"


def link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def places(parts: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Part → path → the kinds of stages that have it there."""
    found: dict[str, dict[str, list[str]]] = {}

    def walk(name: str, path: str, kind: str) -> None:
        found.setdefault(name, {}).setdefault(path, []).append(kind)
        for key, value in parts[name].get("properties", {}).items():
            for reference in references(value):
                walk(reference, f"{path}.{key}", kind)

    for stage in STAGES:
        walk(stage, "stage", parts[stage]["properties"]["kind"]["const"])
    return found


def references(schema: dict[str, Any]) -> list[str]:
    options = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    return [one["$ref"].rpartition("/")[2] for one in options if "$ref" in one]


def settings_page() -> str:
    from composer_web.env import DEFAULT_DATA, PREFIX, Env

    schema = Env.model_json_schema()
    rows = []
    for name, one in schema["properties"].items():
        default = one.get("default", "")
        shown = "`.data`" if default == str(DEFAULT_DATA) else default_of(one)
        limits = bounds_of(one)
        kind = type_of(one, link)
        rows.append(
            [
                code(f"{PREFIX}{name.upper()}"),
                f"{kind}, {limits}" if limits else kind,
                shown,
                plain(one.get("description", "")),
            ]
        )
    return "\n\n".join(
        [
            "# Settings of the product",
            GENERATED.format(source="`composer_web/env.py`"),
            "Every process reads these environment variables. Where one is unset, the process reads `<data>/run/env`, which "
            "`make up` writes. A wrong or misspelt variable ends the process with one line that names it.",
            table(["Variable", "Type", "Default", "Meaning"], rows),
        ]
    )
