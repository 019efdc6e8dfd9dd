"""A renderer for any chat template: rendering by the template itself, parsing by the package `renderers`.

What follows a turn is found by rendering a small conversation and taking what comes after the assistant's turn, so any
template serves that keeps earlier turns as they were said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from sandbox.harness.types import ToolCall
from trainer.policy.rendering.chat import (
    THINK,
    THINK_END,
    ChatRenderer,
    ChatTemplateError,
    Message,
    ParsedTurn,
    structured,
)
from trainer.policy.rendering.controls import SafeTokenizer
from trainer.policy.rendering.reading import read_turn, syntax_of

PROBE_USER = "probe-question"
PROBE_ANSWER = "probe-answer"
PROBE_CALL = ToolCall(id="call_0", name="probe", arguments={"probe": "x"})
OPEN_MARKS = ("</tool_call>",)
"""Marks that end a call and not the turn."""
TEMPLATE_FAILS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""What a template raises where it does not expect a conversation: its expressions are Python's."""


class TemplateRenderer(ChatRenderer):
    """Renders with the tokenizer's own chat template. Raises ChatTemplateError when it has none that ends turns."""

    prefix_stable = True
    """It is required of a template (`round_trip`)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str = "template") -> None:
        if not tokenizer.chat_template:
            raise ChatTemplateError("the policy has no chat template; import it again with one, such as chatml-tools")
        self.name, self.tokenizer = name, tokenizer
        self.safe = SafeTokenizer(tokenizer)
        self.syntax = syntax_of(self.safe, lambda: self.stop_ids)
        self.call_marks, self.streams = self.syntax.call_marks, self.syntax.streams
        self.thinks = bool(self.call_marks)
        self._ends = self._find_turn_ends()
        self.turn_end_id = self.safe.added[self._ends[0]]
        stop = {self.safe.added[end] for end in self._ends}
        if tokenizer.eos_token_id is not None:
            stop.add(int(tokenizer.eos_token_id))
        self.stop_ids = sorted(stop)

    def start(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, max_tokens: int | None = None
    ) -> list[int]:
        return self.safe.ids(self._render(messages, tools), max_tokens)

    def conversation(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        return self.safe.ids(self._render(messages, tools, prompt=False))

    def follow(
        self,
        messages: Sequence[Message],
        *,
        said: Sequence[int] = (),
        before: Sequence[int] = (),
        max_tokens: int | None = None,
    ) -> list[int]:
        closing = [] if not said or said[-1] in self.stop_ids else [self.turn_end_id]
        room = None if max_tokens is None else max_tokens - len(closing)
        return [*closing, *self.safe.ids(self._bridge(messages, said), room)]

    def turn(self, calls: Sequence[ToolCall], text: str = "") -> list[int]:
        if not calls:
            return [*self.safe.plain(text), self.turn_end_id]
        message = {"role": "assistant", "content": text, "tool_calls": structured(calls)}
        return self.written([{"role": "user", "content": PROBE_USER}], message)

    def written(
        self, before: Sequence[Message], message: Message, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        prompt, shown = self._render(before, tools), self._render([*before, message], tools, prompt=False)
        if not shown.startswith(prompt) and self.opens_thinking:  # only the prompt opens a block: the turn closes it
            prompt = prompt[: prompt.rindex(THINK)]
            text = f"{THINK_END}\n\n{shown[len(prompt) :]}"
        else:
            text = shown[len(prompt) :]
        ended = [found for found in self.safe.control.finditer(text) if found.group() in self._ends]
        if not shown.startswith(prompt) or not ended:
            raise ChatTemplateError(
                "the chat template does not write an assistant's turn where its generation prompt ends; use one that does"
            )
        return [*self.safe.ids(text[: ended[-1].start()]), self.safe.added[ended[-1].group()]]

    def parse(
        self, token_ids: Sequence[int], *, tools: Sequence[Mapping[str, Any]] = (), prompt: Sequence[int] = ()
    ) -> ParsedTurn:
        opened = prompt or (self._opening if self.opens_thinking else ())
        return read_turn(self, self.syntax.parse, token_ids, tools=tools, prompt=opened)

    @cached_property
    def opens_thinking(self) -> bool:
        """Whether the generation prompt opens the thinking block."""
        return self.text(self._opening).rstrip().endswith(THINK)

    @cached_property
    def _opening(self) -> list[int]:
        return self.start([{"role": "user", "content": PROBE_USER}])

    # -- rendering ------------------------------------------------------------------------------------

    def _probe(self, calls: Sequence[ToolCall] = ()) -> list[dict[str, Any]]:
        answer: dict[str, Any] = {"role": "assistant", "content": PROBE_ANSWER}
        if calls:
            answer["tool_calls"] = structured(calls)
        return [{"role": "user", "content": PROBE_USER}, answer]

    def _bridge(self, messages: Sequence[Message], said: Sequence[int]) -> str:
        """Raises ChatTemplateError."""
        try:
            probe = self._probe()
            shown = self._render([*probe, *messages])
            known = PROBE_ANSWER
        except ChatTemplateError:
            if not messages or messages[0].get("role") != "tool":
                raise
            called = self.parse(said).calls or (PROBE_CALL,)
            known = called[-1].name
            probe = self._probe(called)  # some templates show a tool's output only after its call
            shown = self._render([*probe, *messages])
        turn = self._render(probe, prompt=False)
        ends = [found.end() for found in self.safe.control.finditer(turn)]
        if ends and known in turn and shown.startswith(turn[: ends[-1]]):
            return shown[ends[-1] :]
        at = shown.find(known)
        end = self.safe.control.search(shown, at) if at >= 0 else None
        if end is None:
            raise ChatTemplateError(
                "the chat template drops the assistant turn before a tool result; use one that keeps it"
            )
        return shown[end.end() :]

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, prompt: bool = True
    ) -> str:
        """Raises ChatTemplateError in the template's own words."""
        safe = [self.safe.safe(message) for message in messages]
        try:
            return str(
                self.safe.apply_chat_template(
                    safe, tools=self.safe.safe_tools(tools), tokenize=False, add_generation_prompt=prompt
                )
            )
        except TEMPLATE_FAILS as error:
            raise ChatTemplateError(
                f"the chat template refuses a conversation: {error}; use one that shows it"
            ) from error

    def _find_turn_ends(self) -> tuple[str, ...]:
        """The control tokens that the template writes after an assistant's turn: of text, and of calls where it differs."""
        shown = self._render(self._probe(), prompt=False)
        at = shown.find(PROBE_ANSWER)
        match = self.safe.control.search(shown, at + len(PROBE_ANSWER)) if at >= 0 else None
        if match is None:
            raise ChatTemplateError(
                "the chat template ends an assistant turn with no special token; add one (for example <|im_end|>)"
            )
        try:
            called = self._render(self._probe((PROBE_CALL,)), prompt=False)
        except ChatTemplateError:
            return (match.group(),)
        last = [found for found in self.safe.control.finditer(called) if found.group() not in OPEN_MARKS]
        return tuple(dict.fromkeys((match.group(), *(found.group() for found in last[-1:]))))
