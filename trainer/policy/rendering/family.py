"""A renderer of a model family: its chat template as code, from the package `renderers`.

Control tokens are emitted by id, and calls and reasoning are found by id. A transcript is extended without rendering
sampled tokens again (`bridge_to_next_turn`). Reasoning of earlier turns stays in the transcript as it was sampled
(`thinking_retention="all"`): what is trained on is what was read when it was sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from renderers import create_renderer
from renderers.configs import BaseRendererConfig, config_from_name
from transformers import PreTrainedTokenizerBase

from sandbox.harness.types import ToolCall
from trainer.policy.rendering.chat import (
    THINK,
    THINK_END,
    ChatRenderer,
    ChatTemplateError,
    Message,
    ParsedTurn,
    PromptTooLong,
    structured,
)
from trainer.policy.rendering.controls import SafeTokenizer
from trainer.policy.rendering.reading import read_turn
from trainer.policy.rendering.template import PROBE_ANSWER, PROBE_USER, TEMPLATE_FAILS

TAIL = 256
"""Tokens of the prompt that a bridge and a parser look at: the generation prompt stands at its end."""
CALL_MARKS = {
    "<tool_call>": "<tool_call>",
    "<minimax:tool_call>": "<minimax:tool_call>",
    "<tool_calls": "<tool_calls",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_begin|>",
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁begin｜>",
    "｜DSML｜": "<｜DSML｜",
}
"""Beginning of a token of the vocabulary → the text that opens a turn's calls."""
OPENING = ({"role": "user", "content": PROBE_USER},)
ANSWERED = (*OPENING, {"role": "assistant", "content": PROBE_ANSWER})
FAILS = (*TEMPLATE_FAILS, AssertionError, NotImplementedError)


def config_of(name: str) -> BaseRendererConfig:
    """The renderer's settings here: its defaults, and reasoning that is kept. Raises ValueError: no such renderer."""
    plain = config_from_name(name)
    assert plain is not None, "a concrete renderer is asked for"
    return type(plain)(**{"name": name, "thinking_retention": "all"})


class FamilyRenderer(ChatRenderer):
    """Raises ChatTemplateError: the tokenizer lacks a token of the family."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.safe = SafeTokenizer(tokenizer)
        self.config = config_of(name)
        try:
            self.inner = create_renderer(self.safe, self.config)
        except FAILS as error:
            raise ChatTemplateError(
                f"the tokenizer does not fit the renderer {name!r}: {error}; import it with the tokenizer it was "
                "published with, or choose another renderer"
            ) from error
        self.prefix_stable = self.inner.is_prefix_stable
        eos = tokenizer.eos_token_id
        self.stop_ids = sorted({*self.inner.get_stop_token_ids(), *([int(eos)] if eos is not None else [])})
        self.call_marks = tuple(
            mark for token, mark in CALL_MARKS.items() if any(text.startswith(token) for text in self.safe.added)
        )
        self.streams = bool(self.call_marks)
        self.thinks = "<think>" in self.safe.added or bool(self.call_marks)
        self.turn_end_id = self.written(OPENING, ANSWERED[-1])[-1]

    def start(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, max_tokens: int | None = None
    ) -> list[int]:
        if max_tokens is not None:
            self._check(messages, max_tokens)
        return _bounded(self._ids(self._safe(messages), tools, prompt=True), max_tokens)

    def conversation(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        return self._ids(self._safe(messages), tools, prompt=False)

    def follow(
        self,
        messages: Sequence[Message],
        *,
        said: Sequence[int] = (),
        before: Sequence[int] = (),
        max_tokens: int | None = None,
    ) -> list[int]:
        if max_tokens is not None:
            self._check(messages, max_tokens)
        prompt, turn = list(before[-TAIL:]) or self._opening, list(said) or [self.turn_end_id]
        new: Any = self._safe(messages, turn)
        try:
            found = self.inner.bridge_to_next_turn(prompt, turn, new)
        except FAILS as error:
            raise ChatTemplateError(f"the renderer {self.name!r} refuses messages after a turn: {error}") from error
        kept = [*prompt, *turn]
        if found is None or found.token_ids[: len(kept)] != kept:
            return _bounded(self._beside(new, turn), max_tokens)
        return _bounded(list(found.token_ids[len(kept) :]), max_tokens)

    def turn(self, calls: Sequence[ToolCall], text: str = "") -> list[int]:
        if not calls:
            return [*self.safe.plain(text), self.turn_end_id]
        return self.written(OPENING, {"role": "assistant", "content": text, "tool_calls": structured(calls)})

    def written(
        self, before: Sequence[Message], message: Message, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        earlier, place = self._safe([*before, message]), len(before)
        prompt = self._ids(earlier[:-1], tools, prompt=True)
        shown = self._rendered([*earlier, *_next(earlier[-1])], tools)
        last = [at for at, index in enumerate(shown.message_indices) if index == place and shown.sampled_mask[at]]
        if not last:
            raise ChatTemplateError(f"the renderer {self.name!r} drops an assistant's turn")
        said = self._after(prompt, list(shown.token_ids[: last[-1] + 1]))
        return said if said and said[-1] in self.stop_ids else [*said, self._close(earlier, tools)]

    def parse(
        self, token_ids: Sequence[int], *, tools: Sequence[Mapping[str, Any]] = (), prompt: Sequence[int] = ()
    ) -> ParsedTurn:
        def inner(ids: list[int], offered: Any, before: list[int]) -> Any:
            return self.inner.parse_response(ids, tools=offered, prompt_ids=before)

        return read_turn(self, inner, token_ids, tools=tools, prompt=list(prompt[-TAIL:]) or self._opening)

    # -- rendering ------------------------------------------------------------------------------------

    @cached_property
    def _opening(self) -> list[int]:
        return self._ids(list(OPENING), (), prompt=True)

    def _safe(self, messages: Sequence[Message], said: Sequence[int] = ()) -> list[Any]:
        safe = [self.safe.safe(message) for message in messages]
        return native_ids(safe, self.parse(said).calls if said else ()) if self.name.startswith("kimi") else safe

    def _beside(self, messages: list[Any], said: list[int]) -> list[int]:
        """What follows the turn, as rendered after a small conversation with its calls: where the package extends no
        transcript (several outputs of DeepSeek V4, a turn that stopped while it thought).

        Raises ChatTemplateError."""
        answer = {**ANSWERED[-1], "tool_calls": structured(self.parse(said).calls)}
        shown = self._rendered([*self._safe([*OPENING, answer]), *messages], (), prompt=True)
        own = [at for at, (_, index, sampled) in enumerate(_attributed(shown)) if index == 1 and sampled]
        if not own:
            raise ChatTemplateError(f"the renderer {self.name!r} drops an assistant's turn before what follows it")
        closing = [] if said[-1] in self.stop_ids else [self.turn_end_id]
        return [*closing, *shown.token_ids[own[-1] + 1 :]]

    def _rendered(self, messages: list[Any], tools: Sequence[Mapping[str, Any]], *, prompt: bool = False) -> Any:
        """Raises ChatTemplateError."""
        offered: Any = self.safe.safe_tools(tools)
        try:
            return self.inner.render(messages, tools=offered, add_generation_prompt=prompt)
        except FAILS as error:
            raise ChatTemplateError(f"the renderer {self.name!r} refuses a conversation: {error}") from error

    def _ids(self, messages: list[Any], tools: Sequence[Mapping[str, Any]], *, prompt: bool) -> list[int]:
        return list(self._rendered(messages, tools, prompt=prompt).token_ids)

    def _after(self, prompt: list[int], shown: list[int]) -> list[int]:
        """The tokens of `shown` that are sampled after `prompt`. Where the prompt ends within a token of `shown`, the rest
        of its text is tokenised as it would be sampled; a thinking block that only the prompt opens is closed."""
        same = next((at for at, pair in enumerate(zip(prompt, shown, strict=False)) if pair[0] != pair[1]), len(prompt))
        if same == len(prompt):
            return shown[same:]
        left = self.text(prompt[same:])
        for end in range(same + 1, len(shown) + 1):
            text = self.text(shown[same:end])
            if text.startswith(left):
                return [*self.safe.plain(text[len(left) :]), *shown[end:]]
        if left.strip() not in ("", THINK):
            raise ChatTemplateError(
                f"the renderer {self.name!r} does not write a turn where its generation prompt ends"
            )
        rest = shown[same:]
        begun = self.text(rest).lstrip()
        if begun.startswith(THINK_END):
            return rest
        if begun.startswith(THINK):  # an empty block where the prompt opens one
            return rest[self.tokens_up_to(rest, THINK, 1) :]
        return [*self.safe.plain(f"{THINK_END}\n\n"), *rest]

    def _close(self, earlier: list[Any], tools: Sequence[Mapping[str, Any]]) -> int:
        """The stop token of a turn that only the next message shows."""
        place = len(earlier) - 1
        shown = self._rendered([*earlier, *(_outputs(earlier[-1]) or OPENING)], tools)
        own = [token for token, index, sampled in _attributed(shown) if index == place and sampled]
        if own and own[-1] in self.stop_ids:
            return int(own[-1])
        return int(self.inner.get_stop_token_ids()[0])

    def _check(self, messages: Sequence[Message], max_tokens: int) -> None:
        """Raises PromptTooLong before a text is rendered that is far too long."""
        texts = [str(message.get("content") or "") for message in messages]
        if sum(map(len, texts)) > max_tokens:  # a token has a character at least
            count = 0
            for text in texts:
                count = self.safe.check(self.safe.mask(text), before=count, max_tokens=max_tokens)


def _outputs(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Empty outputs of a turn's calls."""
    calls = message.get("tool_calls") or []
    return [{"role": "tool", "content": "", "tool_call_id": str(call.get("id", ""))} for call in calls]


def _next(message: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """What a turn is rendered before, so that it is written as it stands in a transcript: some templates give the last
    turn an empty thinking block. Before a user's message they would leave thinking out."""
    return _outputs(message) or (() if message.get("reasoning_content") else OPENING)


def _attributed(shown: Any) -> zip[tuple[int, int, bool]]:
    return zip(shown.token_ids, shown.message_indices, shown.sampled_mask, strict=True)


def _bounded(ids: list[int], max_tokens: int | None) -> list[int]:
    if max_tokens is not None and len(ids) > max_tokens:
        raise PromptTooLong(len(ids), max_tokens)
    return ids


def native_ids(messages: list[dict[str, Any]], said: Sequence[ToolCall] = ()) -> list[dict[str, Any]]:
    """Call ids in Kimi's form `functions.NAME:INDEX`, from which its calls' names are read; the index counts the
    conversation's calls. `said` are the calls of the turn before the messages."""
    count, names = 0, [call.id for call in said]
    pending: dict[str, str] = {}
    order = iter(names)
    made: list[dict[str, Any]] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            new = []
            pending = {}
            for call in calls:
                old = str(call.get("id") or "")
                own = old if old.startswith("functions.") else f"functions.{call['function']['name']}:{count}"
                pending[old], count = own, count + 1
                new.append({**call, "id": own})
            made.append({**message, "tool_calls": new})
            order = iter([call["id"] for call in new])
        elif message.get("role") == "tool":
            old, next_ = str(message.get("tool_call_id") or ""), next(order, "")
            own = old if old.startswith("functions.") else pending.get(old) or next_ or old
            made.append({**message, "tool_call_id": own})
        else:
            made.append(message)
    return made
