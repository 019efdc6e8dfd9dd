"""Each model family renders as its template does, reads back what it wrote, and extends a transcript without changing it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.harness.types import ToolCall, ToolResult
from tests.trainer.policy.families import FAMILIES, Family, tokenizer_of
from trainer.policy import ChatRenderer, make_renderer
from trainer.policy.rendering import TemplateRenderer, choose
from trainer.policy.rendering.chat import ChatTemplateError, structured
from trainer.policy.round_trip import check_template

TOOLS = schemas_of(get_profile("full"))
OPENING = [
    {"role": "system", "content": "You fix code."},
    {"role": "user", "content": "`f(1)` returns 2.\nExpected 3."},
]
GREP = ToolCall(id="call_0", name="grep", arguments={"pattern": 'def total|"é"'})
READ = ToolCall(id="call_1", name="read_file", arguments={"path": "1", "start_line": 3})
EDIT = ToolCall(
    id="call_0",
    name="edit_file",
    arguments={"path": "a.py", "old_string": "true", "new_string": 'it\'s {"x": 1}\n    & <y>\\n'},
)
THOUGHT = "First I look.\nThen I edit."

families = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@cache
def renderer_of(family: Family) -> ChatRenderer:
    return make_renderer(tokenizer_of(family), "auto" if family.template else family.name)


def said(calls: tuple[ToolCall, ...], text: str = "", thought: str = "") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text, "tool_calls": structured(calls)}
    return {**message, "reasoning_content": thought} if thought else message


def result(call: ToolCall, output: str) -> dict[str, Any]:
    return {"role": "tool", "content": output, "tool_call_id": call.id}


def turns_of(family: Family) -> list[tuple[ToolCall, ...]]:
    return [(GREP, READ) if family.parallel else (GREP,), (EDIT,)]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.template], ids=lambda family: family.name)
def test_it_is_recognised_and_renders_what_its_template_renders(family: Family) -> None:
    renderer = renderer_of(family)
    assert renderer.name == family.chosen
    calls = tuple(
        call.model_copy(update={"id": f"functions.{call.name}:{n}"}) for n, call in enumerate(turns_of(family)[0])
    )
    whole = [*OPENING, said(calls), *(result(call, f"a.py:{n}") for n, call in enumerate(calls))]
    for messages, tools in ((OPENING, []), (OPENING, TOOLS), (whole, TOOLS)):
        shown = renderer.tokenizer.apply_chat_template(
            messages, tools=tools or None, add_generation_prompt=True, return_dict=False
        )
        assert renderer.start(messages, tools) == list(shown)


@families
def test_it_can_drive_episodes(family: Family) -> None:
    check_template(renderer_of(family))


@families
@pytest.mark.parametrize("thought", ["", THOUGHT], ids=["silent", "thinking"])
def test_calls_are_read_back_as_they_were_meant(family: Family, thought: str) -> None:
    renderer = renderer_of(family)
    prompt = renderer.start(OPENING, TOOLS)
    for calls in turns_of(family):
        turn = renderer.written(OPENING, said(calls, thought=thought), TOOLS)
        assert turn[-1] in renderer.stop_ids
        read = renderer.parse(turn, tools=TOOLS, prompt=prompt)
        assert read.error is None
        assert [(call.name, call.arguments) for call in read.calls] == [(call.name, call.arguments) for call in calls]
        assert read.content == ""
        if read.reasoning:
            assert read.reasoning.strip() == thought
            assert 0 < read.thinking_tokens < len(turn)


@families
def test_a_turn_continued_is_the_conversation_rendered_anew(family: Family) -> None:
    """Within a cycle of calls, where templates keep what was said; the tokens of the turn itself are never rendered."""
    renderer = renderer_of(family)
    ids, messages = renderer.start(OPENING, TOOLS), list(OPENING)
    for calls in turns_of(family):
        message = said(calls, thought=THOUGHT if family.thoughts else "")
        turn = renderer.written(messages, message, TOOLS)
        read = renderer.parse(turn, tools=TOOLS, prompt=ids)
        outputs = [ToolResult(call_id=call.id, output=f"a.py:{n}: x") for n, call in enumerate(read.calls)]
        bridge = renderer.observe(outputs, said=turn, before=ids)
        ids = [*ids, *turn, *bridge]
        messages += [message, *(result(call, one.output) for call, one in zip(calls, outputs, strict=True))]
    assert renderer.text(ids) == renderer.text(renderer.start(messages, TOOLS))
    assert ids == renderer.start(messages, TOOLS)


@families
def test_text_from_outside_is_never_a_control_token(family: Family) -> None:
    renderer = renderer_of(family)
    added = renderer.tokenizer.get_added_vocab()
    hostile = " ".join(f"{mark}x" for mark in added)

    def controls(ids: list[int]) -> int:
        return sum(token in added.values() for token in ids)

    turn = renderer.written(OPENING, said((GREP,)), TOOLS)
    call_id = renderer.parse(turn, tools=TOOLS).calls[0].id
    plain, attacked = (
        renderer.observe([ToolResult(call_id=call_id, output=output)], ask=output, said=turn, before=[])
        for output in ("x", hostile)
    )
    assert controls(plain) == controls(attacked)
    assert hostile in renderer.text(attacked).replace('\\"', '"')
    opened = [[{"role": "system", "content": text}, {"role": "user", "content": text}] for text in ("x", hostile)]
    assert len({controls(renderer.start(messages, TOOLS)) for messages in opened}) == 1
    tools = [
        {"type": "function", "function": {"name": "x", "description": text, "parameters": {}}}
        for text in ("x", hostile)
    ]
    assert len({controls(renderer.start(OPENING, [tool])) for tool in tools}) == 1


@families
def test_a_turn_that_was_cut_off_is_ended_before_what_follows(family: Family) -> None:
    renderer = renderer_of(family)
    whole = renderer.written(OPENING, {"role": "assistant", "content": "I look"}, TOOLS)
    cut = whole[:-1]
    after = renderer.follow([{"role": "user", "content": "Go on."}], said=cut, before=renderer.start(OPENING, TOOLS))
    assert any(token in renderer.stop_ids for token in after[:3])


@families
def test_a_turn_that_stopped_while_it_thought_is_followed_by_what_comes_next(family: Family) -> None:
    """It is the policy's failure, and never that of the machinery."""
    renderer = renderer_of(family)
    opened = renderer.safe.plain("<think>\nI look") if renderer.thinks else renderer.turn((), "I look")[:-1]  # type: ignore[attr-defined]
    said = [*opened, renderer.turn_end_id]
    after = renderer.follow([{"role": "user", "content": "Go on."}], said=said, before=renderer.start(OPENING, TOOLS))
    assert "Go on." in renderer.text(after)


@families
def test_what_does_not_parse_is_an_error_in_words_and_never_an_exception(family: Family) -> None:
    renderer = renderer_of(family)
    turn = renderer.sampled(renderer.written(OPENING, said((EDIT,)), TOOLS))
    for end in range(1, len(turn)):
        read = renderer.parse(turn[:end], tools=TOOLS)
        assert not read.calls or [call.name for call in read.calls] == [EDIT.name]
    deep = "[" * 3000 + "]" * 3000
    for text in (deep, '{"name": "grep", "arguments": ' + deep + "}", '{"name": 3}'):
        for mark in renderer.call_marks or ("",):
            renderer.parse(renderer.turn((), f"{mark}{text}"), tools=TOOLS)


def test_a_renderer_can_be_chosen_and_the_choice_is_saved_with_the_tokenizer(tmp_path: Any) -> None:
    family = next(one for one in FAMILIES if one.name == "qwen3")
    tokenizer = tokenizer_of(family)
    choose(tokenizer, "template")
    tokenizer.save_pretrained(tmp_path)
    again = type(tokenizer).from_pretrained(tmp_path)
    assert isinstance(make_renderer(again), TemplateRenderer)
    assert make_renderer(again, "qwen3").name == "qwen3"
    choose(again, "auto")
    assert make_renderer(again).name == "qwen3"


def test_a_changed_template_is_rendered_itself_and_parsed_as_its_family() -> None:
    family = next(one for one in FAMILIES if one.name == "qwen3")
    tokenizer = tokenizer_of(family)
    tokenizer.chat_template = family.template.replace("You may call one or more functions", "Call functions")
    renderer = make_renderer(tokenizer)
    assert renderer.name == "template"
    assert "Call functions" in renderer.text(renderer.start(OPENING, TOOLS))
    assert renderer.parse(renderer.turn([GREP])).calls[0].arguments == GREP.arguments


def test_a_tokenizer_without_a_familys_tokens_is_refused_by_name() -> None:
    llama = next(one for one in FAMILIES if one.name == "llama-3")
    with pytest.raises(
        ChatTemplateError, match=r"does not fit the renderer 'qwen3': .*<\|im_start\|>.*another renderer"
    ):
        make_renderer(tokenizer_of(llama), "qwen3")
    with pytest.raises(ChatTemplateError, match="there is no renderer 'qwen33'; there are: auto, template"):
        make_renderer(tokenizer_of(llama), "qwen33")
