"""Templates that can drive episodes, and those that cannot, in the manners of real models; each is refused in words."""

from __future__ import annotations

import pytest

from tests.trainer.policy.test_chat import QWEN_LIKE, chat_tokenizer
from tests.trainer.stages.memory import BASE_POLICY
from tests.trainer.toy_tokenizer import fresh_tokenizer
from trainer.policy import ChatRenderer, load_tokenizer, make_renderer
from trainer.policy.round_trip import TemplateNotExact, check_template

QWEN = QWEN_LIKE.replace("{{ call | tojson }}", "{{ call.function | tojson }}")
HERMES = QWEN_LIKE.replace(
    "{{ call | tojson }}",
    '{"arguments": {{ call.function.arguments | tojson }}, "name": "{{ call.function.name }}"}',
)
"""The arguments come first."""
TURN = "{{ message.content }}{% for call"
THOUGHT_SHOWN = "<think>\\n{{ message.reasoning_content }}\\n</think>\\n\\n".replace("\\n", "\n")
THINKING = QWEN.replace(TURN, "{% if message.reasoning_content %}" + THOUGHT_SHOWN + "{% endif %}" + TURN)
HYBRID = QWEN.replace(
    TURN,
    "{% if message.role == 'assistant' and (loop.last or message.reasoning_content) %}"
    "<think>\n{{ message.reasoning_content or '' }}\n</think>\n\n{% endif %}" + TURN,
)
"""The last turn has a thinking block, be it an empty one."""
OPENED = THINKING.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
"""The prompt opens the thinking block."""
LLAMA = """\
{{- '<|begin|>' }}{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception('one call a turn') }}{% endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header|>assistant<|end_header|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
{{- (call.arguments | tojson) + '}<|eot|>' }}
{%- else %}
{{- '<|start_header|>' + ('ipython' if message.role == 'tool' else message.role) + '<|end_header|>\\n\\n' }}
{{- message.content + '<|eot|>' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header|>assistant<|end_header|>\\n\\n' }}{% endif %}"""
DEEPSEEK = """\
{{- '<|begin|>' }}{%- for message in messages %}
{%- if message.role == 'system' %}{{- message.content }}
{%- elif message.role == 'user' %}{{- '<|User|>' + message.content }}
{%- elif message.role == 'assistant' %}{{- '<|Assistant|>' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<|call|>function<|sep|>' + call.function.name + '\\n```json\\n' + ARGUMENTS + '\\n```' }}
{%- endfor %}{{- '<|eot|>' }}
{%- elif message.role == 'tool' %}{{- '<|output|>' + message.content }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"""
XML = QWEN.replace(
    "{{ call.function | tojson }}",
    "<function={{ call.function.name }}>\n{% for name, value in call.function.arguments.items() %}"
    "<parameter={{ name }}>\n{{ value }}\n</parameter>\n{% endfor %}</function>",
)
SPECIAL = ["<|begin|>", "<|start_header|>", "<|end_header|>", "<|eot|>", "<|User|>", "<|Assistant|>", "<|output|>"]
FORGETFUL = QWEN.replace("in message.tool_calls or []", "in (message.tool_calls or [] if loop.last else [])")
DEAF = QWEN.replace("message.role == 'tool'", "message.role == 'nobody'")
WITHOUT_CALLS = QWEN.replace("message.tool_calls or []", "[]").replace("tool_call>", "call>")
NO_SYSTEM = QWEN + "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"


def renderer(template: str) -> ChatRenderer:
    tokenizer = chat_tokenizer(template)
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
    return make_renderer(tokenizer)


def test_the_shipped_policy_and_a_fresh_toy_pass() -> None:
    check_template(make_renderer(load_tokenizer(BASE_POLICY)))
    check_template(make_renderer(fresh_tokenizer()))


@pytest.mark.parametrize(
    "template",
    [QWEN, HERMES, THINKING, HYBRID, OPENED, XML, LLAMA],
    ids=["qwen", "hermes", "thinking", "hybrid", "opened", "xml", "llama"],
)
def test_templates_whose_calls_are_understood_pass(template: str) -> None:
    assert template != QWEN_LIKE
    check_template(renderer(template))


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (DEEPSEEK.replace("ARGUMENTS", "(call.function.arguments | tojson)"), r"another form .* it wrote .*```json"),
        (DEEPSEEK.replace("ARGUMENTS", "call.function.arguments"), r"refuses a conversation: .*str"),
        (QWEN_LIKE, "another form .* it wrote"),
        (WITHOUT_CALLS, "another form .* it wrote ''"),
        (FORGETFUL, r"not token-exact: from token \d+ .* keeps earlier turns"),
        (DEAF, "does not show what a tool answered"),
        (NO_SYSTEM, "no system here"),
    ],
    ids=["deepseek", "deepseek-text", "whole-call", "none", "forgetful", "deaf", "no-system"],
)
def test_templates_that_cannot_drive_episodes_are_refused_in_words(template: str, words: str) -> None:
    with pytest.raises(TemplateNotExact, match=words):
        check_template(renderer(template))
