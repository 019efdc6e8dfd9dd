"""Form fields generated from a pydantic model's JSON schema, and the way back from posted strings.

A field's name is the location that pydantic reports in its errors (`stage.rl.sampling.temperature`), so an
error finds its field without a second mapping. A discriminated union becomes one group a variant; the choice
itself is posted under the choice's own name (`stage=rl`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from trainer.config import RunConfig
from trainer.config.auto import AUTO
from trainer.config.parts import PATTERNS

Widget = Literal["text", "lines", "integer", "number", "check", "choice"]


@dataclass(frozen=True)
class FormField:
    name: str
    label: str
    help: str
    widget: Widget
    optional: bool = False
    advanced: bool = False
    choices: tuple[str, ...] = ()
    nothing: str = "any"
    """Label of the empty choice."""
    auto: bool = False
    """Whether the value may be `auto`."""
    bounds: str = ""
    """Allowed range as text (`> 0, ≤ 1`)."""


@dataclass(frozen=True)
class Group:
    """Fields of one nested model, with the models nested in it."""

    name: str
    label: str
    help: str = ""
    fields: tuple[FormField, ...] = ()
    groups: tuple[Group, ...] = ()

    def walk(self) -> Iterator[FormField]:
        yield from self.fields
        for group in self.groups:
            yield from group.walk()


@dataclass(frozen=True)
class Choice:
    """A discriminated union: the discriminator field and one group per variant."""

    name: str
    tag: str
    variants: Mapping[str, Group]


@dataclass(frozen=True)
class FormSchema:
    root: Group
    choices: tuple[Choice, ...] = ()
    by_name: dict[str, FormField] = field(default_factory=dict)


def label_of(name: str) -> str:
    """`max_turn_tokens` → `Max turn tokens`. The field's acronyms stay in capitals."""
    text = name.rpartition(".")[2].replace("_", " ")
    known = {
        "rl": "RL",
        "sft": "SFT",
        "midtrain": "Mid-training",
        "kl coefficient": "KL coefficient",
        "drop solved none": "Exclude never solved",
        "drop solved all": "Exclude always solved",
        "easy to hard": "Curriculum strength",
    }
    return known.get(text, text[:1].upper() + text[1:])


@dataclass(frozen=True)
class Heading:
    """Column heading of a setting: its form label and its location."""

    path: str
    label: str

    @property
    def help(self) -> str:
        return setting_help(self.path)


@cache
def _descriptions() -> dict[str, str]:
    """Setting by its path in a configuration → its description; of several variants, the first that has it."""
    schema = form_schema(RunConfig)
    found: dict[str, str] = {}
    for name, one in schema.by_name.items():
        parts = name.split(".")
        if any(choice.name == parts[0] for choice in schema.choices):
            del parts[1]  # the variant
        found.setdefault(".".join(parts), one.help)
    return found


def setting_help(path: str) -> str:
    """What a setting does, and its path."""
    text = _descriptions().get(path, "")
    return f"{text}. {path}" if text else path


def headings(paths: Sequence[str]) -> list[Heading]:
    """Headings of the settings. The group is included if two labels would be equal."""
    labels = [label_of(path) for path in paths]
    return [
        Heading(path, f"{label_of(path.rpartition('.')[0])}: {label.lower()}" if labels.count(label) > 1 else label)
        for path, label in zip(paths, labels, strict=True)
    ]


def form_schema(model: type[BaseModel]) -> FormSchema:
    """The whole form of a model: plain fields, nested groups, and top-level choices."""
    schema = model.model_json_schema()
    definitions: dict[str, Any] = schema.get("$defs", {})
    plain = {k: v for k, v in schema["properties"].items() if "discriminator" not in v}
    choices = tuple(
        Choice(
            name=name,
            tag=spec["discriminator"]["propertyName"],
            variants={
                tag: _group(
                    f"{name}.{tag}",
                    definitions[ref.rpartition("/")[2]],
                    definitions,
                    skip=spec["discriminator"]["propertyName"],
                )
                for tag, ref in _in_order(spec)
            },
        )
        for name, spec in schema["properties"].items()
        if "discriminator" in spec
    )
    root = _group("", {**schema, "properties": plain}, definitions)
    everything = [*root.walk(), *(f for u in choices for g in u.variants.values() for f in g.walk())]
    return FormSchema(root, choices, {f.name: f for f in everything})


def _in_order(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(tag, reference) in the model's order of variants."""
    refs = [option["$ref"] for option in spec["oneOf"]]
    return sorted(spec["discriminator"]["mapping"].items(), key=lambda pair: refs.index(pair[1]))


def _group(name: str, schema: Mapping[str, Any], definitions: Mapping[str, Any], skip: str = "") -> Group:
    fields: list[FormField] = []
    groups: list[Group] = []
    for key, spec in schema["properties"].items():
        path = f"{name}.{key}" if name else key
        if key == skip:
            continue
        if "$ref" in spec:
            target = definitions[spec["$ref"].rpartition("/")[2]]
            groups.append(_group(path, target, definitions))
        else:
            fields.append(_field(path, spec))
    return Group(name, label_of(name), schema.get("description", ""), tuple(fields), tuple(groups))


def _field(name: str, spec: Mapping[str, Any]) -> FormField:
    options = [s for s in spec.get("anyOf", [spec]) if s.get("type") != "null"]
    core = {**spec, **options[0]}
    widgets: dict[str, Widget] = {"integer": "integer", "number": "number", "boolean": "check"}
    choices = tuple(str(c) for c in core.get("enum", ()))
    return FormField(
        name=name,
        label=label_of(name),
        help=spec.get("description", ""),
        widget="choice"
        if choices
        else "lines"
        if spec.get("lines")
        else widgets.get(core.get("type", "string"), "text"),
        optional="anyOf" in spec,
        advanced=bool(spec.get("advanced")),
        choices=choices,
        nothing=str(spec.get("nothing", "any")),
        auto=bool(spec.get("auto")),
        bounds=_bounds(core, auto=bool(spec.get("auto"))),
    )


def _bounds(core: Mapping[str, Any], *, auto: bool) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": ">" if auto else "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    found = ", ".join(f"{sign} {core[key]:g}" for key, sign in signs.items() if key in core)
    return f"{AUTO}, or {found}" if auto and found else found


def text_of(value: Any) -> str:
    """A value as its form control shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else ""
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)


def flatten(schema: FormSchema, config: BaseModel) -> dict[str, str]:
    """Form strings of an existing configuration. Variants that it does not use are absent."""
    dump = config.model_dump()
    values: dict[str, str] = {}
    for choice in schema.choices:
        tag = str(dump[choice.name][choice.tag])
        values[choice.name] = tag
        dump[choice.name] = {tag: dump[choice.name]}
    for name in schema.by_name:
        node: Any = dump
        for part in name.split("."):
            if part not in node:
                break
            node = node[part]
        else:
            values[name] = AUTO if schema.by_name[name].auto and node == 0 else text_of(node)
    return values


def nest(schema: FormSchema, posted: Mapping[str, str]) -> dict[str, Any]:
    """Convert posted strings to the nested mapping that the model validates. Unknown names are rejected as extra
    fields."""
    result: dict[str, Any] = {}
    for choice in schema.choices:
        result[choice.name] = {choice.tag: posted.get(choice.name, "")}
    for name, item in schema.by_name.items():
        parts = name.split(".")
        owner = next((c for c in schema.choices if parts[0] == c.name), None)
        if owner is not None:
            if parts[1] != posted.get(owner.name):
                continue
            parts = [parts[0], *parts[2:]]
        node = result
        for part in parts[:-1]:
            node = node.setdefault(part, {})
        text = posted.get(name, "").strip()
        if item.widget == "check":
            node[parts[-1]] = text not in ("", "false", "off")
        elif text or not item.optional:
            node[parts[-1]] = text or (AUTO if item.auto else "")
        else:
            node[parts[-1]] = None
    return result


def field_errors(schema: FormSchema, error: ValidationError) -> dict[str, list[str]]:
    """Messages by field name. A group's error is attached to the first field that the message names, or to the group
    itself if it names none."""
    found: dict[str, list[str]] = {}
    for item in error.errors():
        name = ".".join(str(part) for part in item["loc"])
        if item["type"] == "value_error" and name not in schema.by_name:
            places = {n: item["msg"].find(n.rpartition(".")[2]) for n in schema.by_name if n.startswith(f"{name}.")}
            named = {n: place for n, place in places.items() if place >= 0}
            name = min(named, key=lambda n: (named[n], n.count("."), -len(n))) if named else name
        found.setdefault(name, []).append(_message(item, schema.by_name.get(name)))
    return found


REQUIRED = "Required; give a value."


def _message(item: Any, target: FormField | None) -> str:
    given = item.get("input")
    shown = repr(given) if isinstance(given, str | int | float) else ""
    match item["type"]:
        case "missing" | "string_too_short":
            return REQUIRED
        case _ if given == "":
            return REQUIRED
        case "int_parsing" | "int_from_float":
            return f"A whole number is needed; found {shown}."
        case "float_parsing" | "finite_number":
            return f"A number is needed; found {shown}."
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal" if target is not None:
            return f"Must be {target.bounds}; found {shown}."
        case "string_pattern_mismatch":
            words = PATTERNS.get(item.get("ctx", {}).get("pattern", ""))
            return f"{words[0].upper()}{words[1:]}; found {shown}." if words else f"{item['msg']}; found {shown}."
        case "value_error":
            text = str(item["ctx"]["error"]) if "ctx" in item else item["msg"]
            return text
        case _:
            return f"{item['msg']}{f'; found {shown}' if shown else ''}."
