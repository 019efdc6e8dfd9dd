"""What a tool is: a name, a description, a pydantic model of its arguments, and a coroutine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from sandbox.backends.base import Sandbox
from sandbox.harness.ordering import NOTHING, Access
from sandbox.harness.profile import Profile


class Arguments(BaseModel):
    """Base of every tool's argument model: unknown arguments are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(slots=True)
class Todo:
    content: str
    status: str


@dataclass(slots=True)
class ToolContext:
    """What tools of one session share."""

    sandbox: Sandbox
    profile: Profile
    todos: list[Todo] = field(default_factory=list)
    finished: bool = False
    summary: str = ""
    background_count: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """A tool's answer. `cut_bytes` counts what the tool itself left out before the session bounds the text."""

    text: str
    cut_bytes: int = 0
    bounded: bool = False
    """True when `text` is already within the profile's limit and must not be cut again."""


A = TypeVar("A", bound=Arguments)


class Tool(ABC, Generic[A]):
    """One tool. Stateless: whatever lasts between calls is in the context or in the sandbox."""

    name: ClassVar[str]
    description: ClassVar[str]
    arguments: ClassVar[type[Arguments]]

    def access(self, arguments: A) -> tuple[Access, ...]:
        """What the call reads and writes, for ordering within a turn. Raises ToolFailure for a refused path."""
        return NOTHING

    @abstractmethod
    async def run(self, arguments: A, context: ToolContext) -> Output:
        """Do it. Raises ToolFailure for the policy's faults and SandboxError for the sandbox's."""

    def recall(self, arguments: A, context: ToolContext) -> None:
        """Bring `context` to where the call left it: the call was run in the past of a sandbox that goes on from there."""
        return

    def schema(self) -> dict[str, Any]:
        """The OpenAI function-tool description of this tool."""
        parameters = _without_titles(self.arguments.model_json_schema())
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": parameters},
        }


def _without_titles(node: Any, *, names: bool = False) -> Any:
    """A JSON schema without pydantic's generated titles and class docstrings. `names`: keys are property names."""
    if isinstance(node, dict):
        kept = node if names else {k: v for k, v in node.items() if not (k == "title" and isinstance(v, str))}
        if not names and node.get("type") == "object":
            kept = {k: v for k, v in kept.items() if k != "description"}
        return {k: _without_titles(v, names=k in ("properties", "$defs") and not names) for k, v in kept.items()}
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    return node
