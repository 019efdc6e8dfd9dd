"""From messages to tokens: a transcript goes on from the very tokens that were sampled, never from their text.

Clients send the whole conversation with each request. When it begins with one that this process answered, the prompt is the
tokens of then and what came since; otherwise the policy's template renders all of it anew.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_web.gateway.errors import BadRequest
from composer_web.gateway.wire import ChatRequest, Message
from sandbox.harness.types import ToolCall, ToolResult
from trainer.stamps import TOKENIZER, Stamp, stamp

if TYPE_CHECKING:
    from trainer.policy.chat import ChatRenderer

MOST_TOKENS = 8_000_000
"""Tokens that the transcripts of one process may hold together; the longest unused go first."""


_renderers: dict[tuple[Path, Stamp], tuple[ChatRenderer, str]] = {}
"""With why the template cannot drive sessions with tools, if it cannot."""
MOST_RENDERERS = 8


def at_hand(folder: Path) -> ChatRenderer | None:
    """`renderer` where it takes no time."""
    found = _renderers.get(_key(folder))
    return found[0] if found else None


def renderer(folder: Path) -> ChatRenderer:
    """Chat template and tokenizer of a policy. Raises PolicyUnreadable. The first call takes seconds: torch is loaded."""
    return _loaded(folder)[0]


def template_problem(folder: Path) -> str:
    """Why the folder's template cannot drive sessions with tools; empty: it can. As `renderer`."""
    return _loaded(folder)[1]


def _loaded(folder: Path) -> tuple[ChatRenderer, str]:
    key = _key(folder)
    found = _renderers.get(key)
    if found is None:
        found = _load(folder)
        for oldest in list(_renderers)[: len(_renderers) - MOST_RENDERERS + 1]:
            _renderers.pop(oldest, None)
        _renderers[key] = found
    return found


def _key(folder: Path) -> tuple[Path, Stamp]:
    return folder, stamp(folder, TOKENIZER)


def _load(folder: Path) -> tuple[ChatRenderer, str]:
    from trainer.policy.chat import ChatRenderer, ChatTemplateError
    from trainer.policy.errors import PolicyUnreadable
    from trainer.policy.round_trip import problem_of
    from trainer.policy.store import load_tokenizer

    try:
        made = ChatRenderer(load_tokenizer(folder))
    except ChatTemplateError as error:
        raise PolicyUnreadable(folder, "chat_template", str(error), "Give the folder a usable template.") from error
    return made, problem_of(made)


@dataclass(frozen=True, slots=True)
class Known:
    """A conversation that was answered: all its tokens, and where it is recorded."""

    tokens: tuple[int, ...]
    session: str = ""
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: list[int]
    base: Known | None = None
    """What it goes on from; its tokens are the prompt's first."""

    @property
    def fresh(self) -> list[int]:
        return self.tokens[len(self.base.tokens) :] if self.base else self.tokens


class Transcripts:
    """Conversations that this process answered, newest use last. Safe to share between threads."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._held, self._most = 0, most_tokens
        self._erasures = 0
        self._lock = threading.Lock()

    def _valid(self, erasures: int) -> bool:
        """Whether a request that came after so many deletions may use the memory. A deletion that is new here empties it,
        whoever made it in whichever process; a request from before the deletion neither finds nor leaves anything."""
        if erasures > self._erasures:
            self._known.clear()
            self._held, self._erasures = 0, erasures
        return erasures == self._erasures

    def remember(self, key: str, known: Known, *, erasures: int = 0) -> None:
        with self._lock:
            if not self._valid(erasures):
                return
            old = self._known.pop(key, None)
            self._held += len(known.tokens) - (len(old.tokens) if old else 0)
            self._known[key] = known
            while self._held > self._most and self._known:
                _, gone = self._known.popitem(last=False)
                self._held -= len(gone.tokens)

    def find(self, key: str, *, erasures: int = 0) -> Known | None:
        with self._lock:
            known = self._known.get(key) if self._valid(erasures) else None
            if known is not None:
                self._known.move_to_end(key)
            return known

    def prompt(self, request: ChatRequest, render: ChatRenderer, *, salt: str, erasures: int = 0) -> Prompt:
        """`salt` keeps conversations of other tokens and policies apart. Raises BadRequest."""
        for end in range(len(request.messages), 0, -1):
            if request.messages[end - 1].role != "assistant":
                continue
            known = self.find(digest(request.messages[:end], request.offered, salt), erasures=erasures)
            bridge = _bridge(request.messages[end:], render) if known else None
            if known is not None and bridge is not None:
                opened = [] if known.tokens[-1] in render.stop_ids else [render.turn_end_id]
                return Prompt([*known.tokens, *opened, *bridge], known)
        return Prompt(render.start([_message(message, render) for message in request.messages], request.offered))


def digest(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], salt: str) -> str:
    """Of what a conversation says; ids of calls and fields that clients add are no part of it."""
    said = [
        [
            message.role,
            message.text,
            [[call.function.name, _arguments(call.function.arguments)] for call in message.tool_calls or ()],
        ]
        for message in messages
    ]
    return hashlib.sha256(json.dumps([salt, said, list(tools)], sort_keys=True).encode()).hexdigest()


def answered(text: str, calls: Sequence[ToolCall]) -> Message:
    """The assistant's message as the client will send it back."""
    return Message.model_validate(
        {
            "role": "assistant",
            "content": text or None,
            "tool_calls": [
                {"id": call.id, "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
                for call in calls
            ]
            or None,
        }
    )


def _bridge(rest: Sequence[Message], render: ChatRenderer) -> list[int] | None:
    """Tokens of tool results and at most one message of the user after the policy's turn; None for anything else."""
    results = []
    for place, message in enumerate(rest):
        if message.role == "tool":
            results.append(ToolResult(call_id=message.tool_call_id or str(place), output=message.text))
        elif message.role == "user" and place == len(rest) - 1:
            return render.observe(results, ask=message.text) if message.text else None
        else:
            return None
    return render.observe(results) if results else None


def _message(message: Message, render: ChatRenderer) -> dict[str, Any]:
    """As chat templates take it. Control tokens within arguments of calls lose their meaning, as in all other text."""
    made: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": message.text}
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": _plain(call.function.name, render),
                    "arguments": _plain(_arguments(call.function.arguments), render),
                },
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        made["tool_call_id"] = message.tool_call_id or ""
    return made


def _arguments(text: str) -> Any:
    """Raises BadRequest."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BadRequest(
            f"arguments of a tool call in the transcript are not JSON: {error}", param="messages"
        ) from error
    return value


def _plain(value: Any, render: ChatRenderer) -> Any:
    if isinstance(value, str):
        for text in (*render.tokenizer.all_special_tokens, "<tool_call>", "</tool_call>"):
            value = value.replace(text, f"{text[:1]}\u200b{text[1:]}")  # seen, and no control token any more
        return value
    if isinstance(value, list):
        return [_plain(item, render) for item in value]
    if isinstance(value, dict):
        return {_plain(key, render): _plain(item, render) for key, item in value.items()}
    return value
