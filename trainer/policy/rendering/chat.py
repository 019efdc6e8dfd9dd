"""Between messages and tokens: what a renderer does, whichever model it renders for.

A renderer makes prompts from messages, reads tool calls and reasoning from sampled tokens, and extends a transcript by
what comes after the policy's turn. Sampled tokens are kept as they are. Text from outside (issues, tool outputs) never
becomes a control token. `rendering.make_renderer` chooses the implementation for a tokenizer.
"""

from __future__ import annotations

import bisect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox.harness.types import ToolCall, ToolResult
from sandbox.storable import parse_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = Mapping[str, Any]

THINK, THINK_END = "<think>", "</think>"


class PromptTooLong(ValueError):
    """A prompt has more tokens than it may have. `tokens` is a lower bound of its count."""

    def __init__(self, tokens: int, max_tokens: int) -> None:
        super().__init__(f"the prompt has at least {tokens} tokens; at most {max_tokens} fit")
        self.tokens, self.max_tokens = tokens, max_tokens


class ChatTemplateError(ValueError):
    """The policy's chat template cannot drive an episode. The message says what is missing and the remedy."""


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """One policy turn as read back from its tokens. `error` says why a call that was meant does not parse."""

    text: str
    """The turn as it was sampled, marks included."""
    calls: tuple[ToolCall, ...] = ()
    error: str | None = None
    thinking_tokens: int = 0
    """Tokens of the turn's thinking block, its marks included."""
    content: str = ""
    """What is said, without thinking and calls."""
    reasoning: str = ""
    thinking_open: bool = False
    """Whether the turn ended within its thinking block."""


def call_json(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


def structured(calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Calls in the form that templates read."""
    return [
        {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def read_calls(blocks: Sequence[str]) -> tuple[ToolCall, ...]:
    """Validate call objects. Raises ValueError that names the first defect: malformed or too deeply nested JSON, too."""
    calls = []
    for index, block in enumerate(blocks):
        value = parse_json(block)
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ValueError('a call is {"name": string, "arguments": object}')
        calls.append(read_call(index, value["name"], value.get("arguments", {})))
    return tuple(calls)


def read_call(index: int, name: str, arguments: Any, id: str = "") -> ToolCall:
    """Raises ValueError."""
    if not isinstance(arguments, dict):
        raise ValueError(f"arguments of {name!r} must be an object, found {type(arguments).__name__}")
    return ToolCall(id=id or f"call_{index}", name=name, arguments=arguments)


class ChatRenderer(ABC):
    """Renders and reads episodes for one tokenizer. Stateless: share it freely.

    `said` is the policy's last turn as it was sampled, `before` the prompt that it was sampled after. What follows a turn
    may depend on both: on the stop token that was sampled, on a thinking block left open, on the ids of its calls.
    """

    name: str
    """The renderer's name, as the setting `renderer` has it."""
    tokenizer: PreTrainedTokenizerBase
    stop_ids: list[int]
    turn_end_id: int
    """The token that ends an assistant's turn."""
    thinks = False
    """Whether a turn may begin with a thinking block."""
    call_marks: tuple[str, ...] = ()
    """Texts that open the calls of a turn; empty where calls have no mark."""
    streams = True
    """Whether the text of half a turn, before the first mark of a call, is what is said."""
    prefix_stable = False
    """Whether the rendering of a longer conversation begins with that of a shorter one, whatever is thought in it."""

    @abstractmethod
    def start(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, max_tokens: int | None = None
    ) -> list[int]:
        """The opening prompt: messages, tool schemas, and the generation prompt.

        Raises PromptTooLong soon after more than `max_tokens` tokens are counted, however long the rest is, and
        ChatTemplateError.
        """

    @abstractmethod
    def conversation(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """A finished conversation at once, without a generation prompt. Raises ChatTemplateError."""

    def observe(
        self,
        results: Sequence[ToolResult],
        ask: str = "",
        *,
        said: Sequence[int] = (),
        before: Sequence[int] = (),
        max_tokens: int | None = None,
    ) -> list[int]:
        """What follows the policy's turn `said`: the tool outputs, a message of the user if one is to `ask` for
        something, and the next generation prompt. Begins with the turn's end where `said` lacks one."""
        tool_messages = [{"role": "tool", "content": r.output, "tool_call_id": r.call_id} for r in results]
        asked = [{"role": "user", "content": ask}] if ask else []
        return self.follow([*tool_messages, *asked], said=said, before=before, max_tokens=max_tokens)

    @abstractmethod
    def follow(
        self,
        messages: Sequence[Message],
        *,
        said: Sequence[int] = (),
        before: Sequence[int] = (),
        max_tokens: int | None = None,
    ) -> list[int]:
        """What follows the policy's turn `said` when these messages come next, and the next generation prompt.

        Without `said`, a turn that ended as the model ends turns. Raises PromptTooLong, ChatTemplateError.
        """

    @abstractmethod
    def turn(self, calls: Sequence[ToolCall], text: str = "") -> list[int]:
        """A scripted turn as the policy would have sampled it, turn-end token included (for expert episodes).

        Marks in `text` become the tokens that they name.
        """

    @abstractmethod
    def written(
        self, before: Sequence[Message], message: Message, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """The assistant's `message` after `before` as the policy would have sampled it, turn-end token included.

        Raises ChatTemplateError: the template changes what stands before it, or drops the turn.
        """

    @abstractmethod
    def parse(
        self, token_ids: Sequence[int], *, tools: Sequence[Mapping[str, Any]] = (), prompt: Sequence[int] = ()
    ) -> ParsedTurn:
        """Read a sampled turn. Never raises: what does not parse is the policy's error.

        `tools` tell strings from other values where a model writes arguments without quotes; `prompt` tells whether
        the prompt opened the thinking block.
        """

    def text(self, token_ids: Sequence[int]) -> str:
        return str(
            self.tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def sampled(self, token_ids: Sequence[int]) -> list[int]:
        """A turn without the tokens that ended it."""
        end = len(token_ids)
        while end and token_ids[end - 1] in self.stop_ids:
            end -= 1
        return list(token_ids[:end])

    def tokens_up_to(self, token_ids: Sequence[int], mark: str, count: int) -> int:
        """Tokens needed to spell `count` marks: the mark need not be a single token."""
        return bisect.bisect_left(range(len(token_ids)), count, key=lambda n: self.text(token_ids[:n]).count(mark))


__all__ = [
    "THINK",
    "THINK_END",
    "ChatRenderer",
    "ChatTemplateError",
    "Message",
    "ParsedTurn",
    "PromptTooLong",
    "call_json",
    "read_call",
    "read_calls",
    "structured",
]
