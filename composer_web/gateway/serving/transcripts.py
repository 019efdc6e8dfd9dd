"""From messages to tokens. A transcript continues from the sampled tokens, never from their text.

Clients send the whole conversation with each request. If it begins with a conversation that this process answered, the
prompt consists of the earlier tokens and the new messages. Otherwise the policy's template renders everything anew.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_web.core.heap import freeze_heap
from composer_web.gateway.errors import BadRequest, ContextExceeded
from composer_web.gateway.serving.openai_types import ChatRequest, Message, loads
from sandbox.harness.types import ToolCall, ToolResult
from trainer.stamps import TOKENIZER, Stamp, stamp

if TYPE_CHECKING:
    from trainer.policy.rendering.chat import ChatRenderer

PROMPT_TAIL = 256
"""Tokens of the prompt that a renderer looks at: the generation prompt stands at its end."""
MAX_TOKENS = 8_000_000
"""Maximum tokens in the transcripts of one process. The least recently used are evicted first."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A policy's renderer, with the data from its folder that a request needs."""

    render: ChatRenderer
    template_problem: str
    """Reason why the template cannot drive sessions with tools. Empty if it can."""
    context: int
    """Maximum number of positions of the model."""


_renderers: dict[tuple[Path, Stamp], Loaded] = {}
MAX_RENDERERS = 8


def at_hand(folder: Path) -> Loaded | None:
    """`load`, if it is already loaded."""
    return _renderers.get(_key(folder))


def renderer(folder: Path) -> ChatRenderer:
    """Chat template and tokenizer of a policy. Raises like `load`."""
    return load(folder).render


def load(folder: Path) -> Loaded:
    """What a request needs of a policy's folder. Each call asks the file system whether the files are still the same.

    Raises PolicyUnreadable. The first call takes seconds: torch is loaded.
    """
    key = _key(folder)
    found = _renderers.get(key)
    if found is None:
        found, first = _load(folder), not _renderers
        for oldest in list(_renderers)[: len(_renderers) - MAX_RENDERERS + 1]:
            _renderers.pop(oldest, None)
        _renderers[key] = found
        if first:  # a tokenizer's libraries came with it; another tokenizer adds little, and may go again
            freeze_heap()
    return found


def _key(folder: Path) -> tuple[Path, Stamp]:
    return folder, stamp(folder, TOKENIZER)


def _load(folder: Path) -> Loaded:
    from trainer.policy.errors import PolicyUnreadable
    from trainer.policy.rendering import make_renderer
    from trainer.policy.rendering.chat import ChatTemplateError
    from trainer.policy.round_trip import problem_of
    from trainer.policy.store import load_config, load_tokenizer

    try:
        made = make_renderer(load_tokenizer(folder))
    except ChatTemplateError as error:
        raise PolicyUnreadable(folder, "chat_template", str(error), "Give the folder a usable template.") from error
    text = load_config(folder).get_text_config()  # of a model of several kinds of input, the one that reads text
    return Loaded(made, problem_of(made), int(getattr(text, "max_position_embeddings", None) or MAX_TOKENS))


@dataclass(frozen=True, slots=True)
class Known:
    """An answered conversation: all its tokens, and where it is recorded."""

    tokens: tuple[int, ...]
    session: str = ""
    turn: int | None = None
    sampled: int = 0
    """How many of the tokens, at their end, are the policy's answer."""
    client_session: str = ""
    """The session's name at the client."""
    experts: int = 0
    """Positions, from the beginning, whose routed experts are recorded."""


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: list[int]
    base: Known | None = None
    """The conversation that this one continues. Its tokens are the prompt's first."""
    prefixes: PrefixDigests | None = None
    """Digests of the conversation's messages."""

    @property
    def fresh(self) -> list[int]:
        return self.tokens[len(self.base.tokens) :] if self.base else self.tokens


class Transcripts:
    """LRU cache of the conversations that this process answered. Thread-safe."""

    def __init__(self, most_tokens: int = MAX_TOKENS) -> None:
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

    def prompt(
        self, request: ChatRequest, render: ChatRenderer, *, salt: str, context: int, erasures: int = 0
    ) -> Prompt:
        """`salt` separates the conversations of other tokens and policies; `context` bounds the prompt, in tokens.

        Raises BadRequest, ContextExceeded.
        """
        from trainer.policy.rendering.chat import PromptTooLong

        messages, most = request.messages, context - 1  # one token is to be sampled
        prefixes = PrefixDigests(messages, request.offered, salt)
        try:
            for end in range(len(messages), 0, -1):
                known = (
                    self.find(prefixes.keys[end], erasures=erasures) if messages[end - 1].role == "assistant" else None
                )
                if known is None:
                    continue
                bridge = _bridge(messages[end:], known, render, most - len(known.tokens))
                if bridge is not None:
                    return Prompt([*known.tokens, *bridge], known, prefixes)
            plain = Plain(render)
            tokens = render.start([_message(message, plain) for message in messages], request.offered, max_tokens=most)
            return Prompt(tokens, None, prefixes)
        except PromptTooLong as error:
            raise ContextExceeded(
                context=context, tokens=context - error.max_tokens + error.tokens, exact=False
            ) from error


def digest(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], salt: str) -> str:
    """Digest of a conversation's content, without call ids and client-specific fields."""
    said = [_said(message) for message in messages]
    return hashlib.sha256(json.dumps([salt, said, list(tools)], sort_keys=True).encode()).hexdigest()


class PrefixDigests:
    """`keys[n]` is the digest of the first `n` messages. Each message is read once, so the cost is linear in the
    conversation."""

    def __init__(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], salt: str) -> None:
        self._state = hashlib.sha256(json.dumps([salt, list(tools)], sort_keys=True).encode())
        self.keys = [self._state.hexdigest()]
        for message in messages:
            _update(self._state, message)
            self.keys.append(self._state.hexdigest())

    def followed_by(self, message: Message) -> str:
        """Digest of all messages and this one."""
        state = self._state.copy()
        _update(state, message)
        return state.hexdigest()


def _update(state: Any, message: Message) -> None:
    """Add one message. Long texts are hashed as they are: each copy or escaping of megabytes holds the GIL."""
    role, text, calls = _said(message)
    said = text.encode()
    state.update(f"\n{role} {len(said)} {json.dumps(calls, sort_keys=True) if calls else ''} ".encode())
    state.update(said)


def _said(message: Message) -> list[Any]:
    calls = [[call.function.name, _arguments(call.function.arguments)] for call in message.tool_calls or ()]
    return [message.role, message.text, calls]


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


def _bridge(rest: Sequence[Message], known: Known, render: ChatRenderer, most: int) -> list[int] | None:
    """Tokens of tool results and at most one message of the user after the policy's turn; None for anything else, and
    where the renderer cannot continue there.

    Raises PromptTooLong for more than `most`.
    """
    from trainer.policy.rendering.chat import ChatTemplateError

    results, asked = [], ""
    for place, message in enumerate(rest):
        if message.role == "tool":
            results.append(ToolResult(call_id=message.tool_call_id or str(place), output=message.text))
        elif message.role == "user" and place == len(rest) - 1:
            asked = message.text
        else:
            return None
    if not results and not asked:
        return None
    begin = len(known.tokens) - (known.sampled or 1)
    said, before = known.tokens[begin:], known.tokens[max(0, begin - PROMPT_TAIL) : begin]
    try:
        return render.observe(results, ask=asked, said=said, before=before, max_tokens=most)
    except ChatTemplateError:
        return None


def _message(message: Message, plain: Plain) -> dict[str, Any]:
    """Message in the format of chat templates. Control tokens in call arguments are neutralised, as in all other
    text."""
    made: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": message.text}
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": plain(call.function.name),
                    "arguments": plain(_arguments(call.function.arguments)),
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
        value = loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BadRequest(
            f"arguments of a tool call in the transcript are not JSON: {error}", param="messages"
        ) from error
    return value


class Plain:
    """Rewrites control tokens in a JSON value so that they stay readable but lose their meaning."""

    def __init__(self, render: ChatRenderer) -> None:
        self._render = render

    @cached_property
    def _marks(self) -> tuple[str, ...]:
        return (*self._render.tokenizer.all_special_tokens, *self._render.call_marks, "</tool_call>")

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            for mark in self._marks:
                value = value.replace(mark, f"{mark[:1]}\u200b{mark[1:]}")
            return value
        if isinstance(value, list):
            return [self(item) for item in value]
        if isinstance(value, dict):
            return {self(key): self(item) for key, item in value.items()}
        return value
