"""What every part of a configuration is made of: a frozen model and a field with its help text."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from trainer.config.renamed import with_new_names


def setting(
    default: Any,
    help: str,
    *,
    advanced: bool = False,
    nothing: str = "",
    lines: bool = False,
    auto: bool = False,
    **bounds: Any,
) -> Any:
    """A field with its help text; `advanced` tells the form where to put it, `nothing` how it calls the empty choice,
    `lines` that its text has several, `auto` that its value may be derived (`auto.py`)."""
    extra: dict[str, JsonValue] = {"advanced": True} if advanced else {}
    if nothing:
        extra["nothing"] = nothing
    if lines:
        extra["lines"] = True
    if auto:
        extra["auto"] = True
    return Field(default=default, description=help, json_schema_extra=extra or None, **bounds)


FOLDER = r"^(\w[\w.-]{0,79})?$"
CODEBASE = r"^((environment|repository|corpus):\w[\w.@-]{0,119}|\w[\w.-]{0,79})?$"
RUN_NAME = r"^[\w][\w .:/+-]{0,79}$"
POOL = r"^([a-z0-9][a-z0-9-]{0,39})?$"
PATTERNS = {
    FOLDER: "a name is needed, no path: letters, digits and . _ -, at most 80 characters",
    CODEBASE: "write repository:NAME, environment:NAME, corpus:NAME, or the name of a folder beside the corpora",
    POOL: "use lower-case letters, digits and -, at most 40 characters, or leave it empty for the default pool",
    RUN_NAME: "use letters, digits, spaces and . : / + - _; start with a letter or digit; at most 80 characters",
}
"""What a pattern asks for, in words."""


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _new_names(cls, given: Any) -> Any:
        return with_new_names(cls, given) if isinstance(given, dict) else given
