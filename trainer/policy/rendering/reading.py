"""Sampled turns as the package `renderers` parses them, and the same for templates that have no renderer of their own.

Calls and reasoning are found by token id where the vocabulary has their marks, by text where it has not. One parsed
response becomes one `ParsedTurn`: a call that was meant and does not parse is an error in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from renderers import DefaultRendererConfig, ParsedResponse, ParsedToolCall, ToolCallParseStatus
from renderers.default import DefaultRenderer
from renderers.parsers import TOOL_PARSERS
from renderers.parsing import parse_gpt_oss, parse_kimi_k2, parse_llama_3, parse_qwen35
from renderers.reasoning import prompt_ends_in_reasoning

from sandbox.harness.types import ToolCall
from sandbox.storable import parse_json
from trainer.policy.rendering.chat import THINK_END, ChatRenderer, ParsedTurn, read_call
from trainer.policy.rendering.controls import SafeTokenizer

CALL, CALL_END = "<tool_call>", "</tool_call>"
NO_TOKEN = -1
"""Id of a mark that the vocabulary lacks: no sampled token has it."""

Parse = Callable[[list[int], list[Any] | None, list[int]], ParsedResponse]
"""(token ids, tools, prompt) → what the turn says."""


class HermesText:
    """`renderers.parsers.ToolParser` for `<tool_call>` blocks that the vocabulary has no tokens for."""

    BLOCK = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)

    def __init__(self, tokenizer: SafeTokenizer) -> None:
        self._tokenizer = tokenizer

    def extract(self, token_ids: list[int]) -> tuple[list[int], list[ParsedToolCall]]:
        text = self._tokenizer.decode(token_ids)
        if CALL not in text:
            return token_ids, []
        calls = [_hermes(found[1].strip(), closed=bool(found[2])) for found in self.BLOCK.finditer(text)]
        return self._tokenizer.plain(text.partition(CALL)[0]), calls


def hermes_blocks(text: str) -> list[str] | None:
    """The JSON text of each `<tool_call>` block after the thinking; None when one is cut off."""
    said = text.rpartition(THINK_END)[2]
    found = HermesText.BLOCK.findall(said)
    return None if any(not end for _, end in found) else [block.strip() for block, _ in found]


def _hermes(block: str, *, closed: bool) -> ParsedToolCall:
    if not closed:
        return ParsedToolCall(raw=block, status=ToolCallParseStatus.UNCLOSED_BLOCK)
    try:
        value = json.loads(block)
    except ValueError:
        return ParsedToolCall(raw=block, status=ToolCallParseStatus.INVALID_JSON)
    name = value.get("name") if isinstance(value, dict) else None
    if not name:
        return ParsedToolCall(raw=block, status=ToolCallParseStatus.MISSING_NAME)
    return ParsedToolCall(raw=block, name=name, arguments=value.get("arguments", {}))


TOOL_PARSERS["hermes-text"] = HermesText


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a template's calls are parsed, and the texts that open them."""

    name: str
    parse: Parse
    call_marks: tuple[str, ...]
    streams: bool = True


def syntax_of(safe: SafeTokenizer, stop_ids: Callable[[], list[int]]) -> Syntax:
    """The call syntax of a template without a renderer of its own, by its marks. JSON in `<tool_call>` where it has none."""
    template, added = str(safe.chat_template or ""), safe.added

    def of(mark: str) -> int:
        return added.get(mark, NO_TOKEN)

    def prefilled(prompt: list[int], opener: str) -> bool:
        return prompt_ends_in_reasoning(safe, prompt, stop_ids=set(stop_ids()), assistant_prefix=opener)

    if {"<|channel|>", "<|message|>", "<|call|>"} <= added.keys():
        return Syntax("harmony", lambda ids, _tools, _prompt: _harmony(safe, ids), ("<|channel|>",), streams=False)
    if "<|tool_calls_section_begin|>" in added and "tool_calls_section_begin" in template:
        opener = "<|im_assistant|>assistant<|im_middle|>"

        def kimi(ids: list[int], _tools: list[Any] | None, prompt: list[int]) -> ParsedResponse:
            return parse_kimi_k2(
                safe,
                ids,
                stop_ids=set(stop_ids()),
                tool_calls_section_begin_id=of("<|tool_calls_section_begin|>"),
                tool_calls_section_end_id=of("<|tool_calls_section_end|>"),
                tool_call_begin_id=of("<|tool_call_begin|>"),
                tool_call_argument_begin_id=of("<|tool_call_argument_begin|>"),
                tool_call_end_id=of("<|tool_call_end|>"),
                prefilled_thinking=prefilled(prompt, opener),
            )

        return Syntax("kimi", kimi, ("<|tool_calls_section_begin|>",))
    if "<｜tool▁calls▁begin｜>" in added and "tool▁calls▁begin" in template:
        return Syntax("deepseek", _default(safe, "deepseek-v3"), ("<｜tool▁calls▁begin｜>",))
    if "<arg_key>" in added and "<arg_key>" in template:
        return Syntax("glm", _default(safe, "glm"), (CALL,))
    if "<function=" in template and CALL in added:

        def xml(ids: list[int], tools: list[Any] | None, prompt: list[int]) -> ParsedResponse:
            return parse_qwen35(
                safe,
                ids,
                stop_ids=set(stop_ids()),
                think_id=of("<think>"),
                think_end_id=of("</think>"),
                tool_call_id=of(CALL),
                tool_call_end_id=of(CALL_END),
                tools=tools,
                prefilled_thinking=prefilled(prompt, "<|im_start|>assistant\n"),
            )

        return Syntax("xml", xml, (CALL,))
    if CALL not in template and '"parameters": ' in template:
        return Syntax("json", lambda ids, _tools, _prompt: _json(safe, ids, set(stop_ids())), (), streams=False)
    return Syntax("hermes", _default(safe, "qwen3" if CALL in added else "hermes-text"), (CALL,))


def _default(safe: SafeTokenizer, parser: str) -> Parse:
    """The parsing of the package's default renderer."""
    inner = DefaultRenderer(safe, DefaultRendererConfig(tool_parser=parser, reasoning_parser="think"))
    return lambda ids, tools, prompt: inner.parse_response(ids, tools=tools, prompt_ids=prompt)


def _harmony(safe: SafeTokenizer, ids: list[int]) -> ParsedResponse:
    """The turn begins within a message: its opener stands in the generation prompt."""
    marks = {name: safe.added.get(f"<|{name}|>", NO_TOKEN) for name in _HARMONY}
    begun = ids if ids[:1] == [marks["start"]] else [marks["start"], *ids]
    return parse_gpt_oss(safe, begun, **{f"{name}_id": number for name, number in marks.items()})


_HARMONY = ("return", "call", "start", "end", "channel", "message", "constrain")


def _json(safe: SafeTokenizer, ids: list[int], stop_ids: set[int]) -> ParsedResponse:
    """A turn that is one JSON object. One that begins as an object and is none was meant as a call."""
    found = parse_llama_3(safe, ids, stop_ids=stop_ids)
    if not found.tool_calls and found.content.startswith('{"name"'):
        broken = ParsedToolCall(raw=found.content, status=ToolCallParseStatus.INVALID_JSON)
        return ParsedResponse(content="", tool_calls=[broken])
    return found


UNUSABLE = {
    ToolCallParseStatus.UNCLOSED_BLOCK: "the tool call is not complete",
    ToolCallParseStatus.INVALID_JSON: "the tool call does not parse: its arguments are not JSON",
    ToolCallParseStatus.MALFORMED_STRUCTURE: "the tool call does not parse: its marks are out of order",
}
NO_NAME = 'the tool call does not parse: a call is {"name": string, "arguments": object}'


def read_turn(
    renderer: ChatRenderer,
    parse: Parse,
    token_ids: Sequence[int],
    *,
    tools: Sequence[Mapping[str, Any]],
    prompt: Sequence[int],
) -> ParsedTurn:
    """Never raises."""
    kept = renderer.sampled(token_ids)
    text = renderer.text(kept)
    try:
        response = parse(list(token_ids), [dict(tool) for tool in tools] or None, list(prompt))
    except RecursionError:
        return ParsedTurn(text, error="the tool call does not parse: its JSON is nested too deeply", content=text)
    thinking = _thinking_tokens(renderer, kept, text, response)
    open_ = response.reasoning_complete is False
    calls, error = _calls(response.tool_calls)
    return ParsedTurn(
        text,
        calls=() if error else calls,
        error=error,
        thinking_tokens=thinking,
        content=response.content,
        reasoning=response.reasoning_content or "",
        thinking_open=open_,
    )


def _calls(attempts: Sequence[ParsedToolCall]) -> tuple[tuple[ToolCall, ...], str | None]:
    """The calls, or why one of them does not parse.

    A name that is no tool's, and an argument that is not of its type, are for the harness to answer.
    """
    calls: list[ToolCall] = []
    for index, attempt in enumerate(attempts):
        verbatim = attempt.status is ToolCallParseStatus.INVALID_JSON and isinstance(attempt.arguments, dict)
        if attempt.status in UNUSABLE and not verbatim:
            return (), UNUSABLE[attempt.status]
        if not isinstance(attempt.name, str) or not attempt.name:
            return (), NO_NAME
        try:
            arguments = parse_json(json.dumps(attempt.arguments)) if attempt.arguments is not None else {}
            calls.append(read_call(index, attempt.name, arguments, attempt.id or ""))
        except (ValueError, RecursionError) as error:
            return (), f"the tool call does not parse: {error}"[:300]
    return tuple(calls), None


def _thinking_tokens(renderer: ChatRenderer, kept: Sequence[int], text: str, response: ParsedResponse) -> int:
    """Tokens of the thinking block up to its end mark; all of the turn while the block is open, else none."""
    if response.reasoning_complete is False:
        return len(kept)
    if response.reasoning_content is None:
        return 0
    if THINK_END in text:
        return renderer.tokens_up_to(kept, THINK_END, 1)
    starts = [call.token_span[0] for call in response.tool_calls if call.token_span]
    return min(
        starts, default=len(renderer.tokenizer(response.reasoning_content, add_special_tokens=False)["input_ids"])
    )
