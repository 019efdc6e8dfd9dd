"""Settings whose value may be `auto`: derived from the model, the tasks and the hardware (`trainer/defaults`).

In Python an automatic number is 0 and an automatic text is "auto". In JSON, YAML, TOML and the form both are "auto".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, PlainSerializer

AUTO = "auto"
Config = TypeVar("Config", bound=BaseModel)


def _read(given: object) -> object:
    return 0 if given == AUTO else given


def _write(value: float) -> Any:
    return value or AUTO


AutoInt = Annotated[int, BeforeValidator(_read), PlainSerializer(_write, when_used="json")]
AutoFloat = Annotated[float, BeforeValidator(_read), PlainSerializer(_write, when_used="json")]


def automatic(config: BaseModel) -> tuple[str, ...]:
    """Dotted paths of the settings of `config` that are automatic, in schema order."""
    return tuple(_automatic(config, ""))


def _automatic(part: BaseModel, prefix: str) -> Iterator[str]:
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, BaseModel):
            yield from _automatic(value, f"{prefix}{name}.")
        elif isinstance(extra := field.json_schema_extra, dict) and extra.get("auto") and value in (0, AUTO):
            yield f"{prefix}{name}"


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """`config` with these values by dotted path, validated again. Raises ValidationError."""
    data = config.model_dump()
    for path, value in values.items():
        *parents, name = path.split(".")
        node = data
        for parent in parents:
            node = node[parent]
        node[name] = value
    return type(config).model_validate(data)
