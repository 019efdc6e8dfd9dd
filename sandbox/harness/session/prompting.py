"""The harness's own prompts, from `prompts/`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache
def prompt(name: str) -> str:
    """The text of `prompts/<name>.md`."""
    return (Path(__file__).parent / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()


def system_prompt() -> str:
    """The system message for chat models (policies whose template has no system part do not see it)."""
    return prompt("system")
