"""Verifies that a chat template can drive episodes: calls parse back, and turn-by-turn rendering is token-exact.

With a template in another call syntax, whole rollouts would run without one parsed call. `check_template` therefore
plays a small conversation with tools before any episode, and reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.harness.types import ToolCall, ToolResult
from trainer.policy.rendering.chat import THINK, ChatRenderer, ChatTemplateError, structured

PROFILE = "full"
"""Profile whose tools the template is given; their schemas cover all shapes that occur."""
OPENING = [
    {"role": "system", "content": "You fix code."},
    {"role": "user", "content": "`total(1)` returns 2, expected 3."},
]
TURNS = (
    (ToolCall(id="call_0", name="grep", arguments={"pattern": 'def total|"é"'}), "totals.py:1:def total(x):"),
    (
        ToolCall(
            id="call_0",
            name="edit_file",
            arguments={"path": "totals.py", "old_string": "x\n    <y>", "new_string": "it's & more"},
        ),
        "edited totals.py:2",
    ),
)
"""Pairs of a call and the tool's answer."""
THOUGHT = "First I look."
SHOWN = 12
"""Tokens shown around the first difference."""
FORMS = "those of the renderers, <tool_call> blocks of JSON, and <function=…> blocks"
SAID_REMEDY = "use a template that keeps earlier turns as they were said"
THINKING_REMEDY = (
    "use a template that shows the thinking of every turn, earlier ones included, and no empty block where a turn has none: "
    "put it as chat_template.jinja into the policy's folder"
)
REMEDY = "choose the model's renderer, or another chat template, such as chatml-tools"

Write = Callable[[Sequence[dict[str, Any]], dict[str, Any], ToolCall], list[int]]
"""(earlier messages, the assistant's message, its call) → the turn's tokens."""


class TemplateNotExact(ChatTemplateError):
    """The template does not round-trip. The message names the defect, its position and the remedy."""


def check_template(renderer: ChatRenderer) -> None:
    """Check the template. Raises TemplateNotExact."""
    try:
        _check_calls(renderer)
        _check_pieces(renderer)
    except TemplateNotExact:
        raise
    except ChatTemplateError as error:
        raise TemplateNotExact(str(error)) from error


def problem_of(renderer: ChatRenderer) -> str:
    """Why the template cannot drive episodes; empty when it can."""
    try:
        check_template(renderer)
    except TemplateNotExact as error:
        return str(error)
    return ""


def _first_difference(renderer: ChatRenderer, ids: Sequence[int], whole: Sequence[int]) -> tuple[int, str, str]:
    """First token at which two renderings differ, with the context in each."""
    at = next((i for i, pair in enumerate(zip(ids, whole, strict=False)) if pair[0] != pair[1]), len(whole))
    turns, rendered = (str(renderer.tokenizer.decode(list(t[max(0, at - 2) : at + SHOWN]))) for t in (ids, whole))
    return at, turns, rendered


def not_exact(
    renderer: ChatRenderer, ids: Sequence[int], whole: Sequence[int], *, of: str, name: str = ""
) -> TemplateNotExact:
    """Error for turn-by-turn tokens `ids` that differ from the full rendering `whole`; `of` names the text."""
    at, turns, rendered = _first_difference(renderer, ids, whole)
    remedy = THINKING_REMEDY if (THINK in turns) != (THINK in rendered) else SAID_REMEDY
    return TemplateNotExact(
        f"the chat template{f' of {name}' if name else ''} is not token-exact: from token {at} of {of} on, turn by turn gives "
        f"{turns!r} and the whole conversation {rendered!r}; {remedy}"
    )


def _check_calls(renderer: ChatRenderer) -> None:
    """Check that calls parse back as intended, as written here and as written by the template."""
    tools = schemas_of(get_profile(PROFILE))
    for call, _ in TURNS:
        read = renderer.parse(
            renderer.written(OPENING, _said(call), tools), tools=tools, prompt=renderer.start(OPENING, tools)
        )
        if read.error or not _same(read.calls, call):
            raise TemplateNotExact(
                f"the chat template writes tool calls in another form than those that are understood ({FORMS}): "
                f"for {_words(call)} it wrote {read.text.strip()[:200]!r}; {REMEDY}"
            )
        read = renderer.parse(renderer.turn([call]), tools=tools)
        if read.error or not _same(read.calls, call):
            raise TemplateNotExact(
                f"the tokenizer changes tool calls: {_words(call)} is read back as {read.error or read.text!r}; "
                "use one that decodes a text to what was encoded"
            )


def _check_pieces(renderer: ChatRenderer) -> None:
    """Check that opening, turns and observations add up to the tokens of the full rendering, in one way of writing
    turns: templates differ in what they keep of a turn's thinking, and in the spaces of a call.
    """
    tools = schemas_of(get_profile(PROFILE))
    parts: TemplateNotExact | None = None
    refused: ChatTemplateError | None = None
    for thought, write in _ways(renderer, tools):
        messages: list[dict[str, Any]] = list(OPENING)
        ids = renderer.start(messages, tools)
        try:
            for call, output in TURNS:
                message = _said(call, thought)
                before, turn = list(ids), write(messages, message, call)
                ids += turn
                ids += _observed(renderer, call, output, said=turn, before=before)
                messages += [message, {"role": "tool", "content": output, "tool_call_id": call.id}]
        except TemplateNotExact:
            raise
        except ChatTemplateError as error:
            refused = refused or error
            continue
        whole = renderer.start(messages, tools)
        if ids == whole or not renderer.prefix_stable:
            return
        parts = parts or not_exact(renderer, ids, whole, of="a small conversation")
    if parts is None:
        assert refused is not None, "each way was tried"
        raise refused
    raise parts


def _ways(renderer: ChatRenderer, tools: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Write]]:
    """Combinations of the assistant's thinking and the writer of its turns: the renderer or the template."""

    def by_template(before: Sequence[dict[str, Any]], message: dict[str, Any], _: ToolCall) -> list[int]:
        return renderer.written(before, message, tools)

    yield "", lambda _before, _message, call: renderer.turn([call])
    yield "", by_template
    yield THOUGHT, by_template


def _observed(
    renderer: ChatRenderer, call: ToolCall, output: str, *, said: Sequence[int], before: Sequence[int]
) -> list[int]:
    ids = renderer.observe([ToolResult(call_id=call.id, output=output)], said=said, before=before)
    if output not in str(renderer.tokenizer.decode(ids)):
        raise TemplateNotExact(
            "the chat template does not show what a tool answered: messages of the role `tool` are left out; "
            "use one that shows them"
        )
    return ids


def _said(call: ToolCall, thought: str = "") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": structured([call])}
    return message | ({"reasoning_content": thought} if thought else {})


def _same(read: Sequence[ToolCall], call: ToolCall) -> bool:
    return [(one.name, one.arguments) for one in read] == [(call.name, call.arguments)]


def _words(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"


__all__ = ["TemplateNotExact", "check_template", "not_exact", "problem_of"]
