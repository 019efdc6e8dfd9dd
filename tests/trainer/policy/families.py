"""Small tokenizers that carry the special tokens of each model family, and templates in the families' formats.

The templates are written here, from the formats that the families document, so that the code which renders them is
compared with something that is not itself. Vocabularies are byte-level and tiny: what is tested is where control tokens
stand, not how words are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""How the vocabularies of today's models cut text before merging."""
CORPUS = ['system user assistant tool def total(x):\n    return x\n\n# Tools\n{"name": "grep"}\n'] * 4


@dataclass(frozen=True)
class Family:
    """A renderer's name, what its vocabulary must hold, and its template (empty: not written here)."""

    name: str
    special: tuple[str, ...]
    marks: tuple[str, ...] = ()
    """Added tokens that are not special, as in the published vocabularies."""
    template: str = ""
    parallel: bool = True
    """Whether a turn may have several calls."""
    thoughts: bool = False
    """Whether its prompts open a thinking block, so that a turn has one."""
    renderer: str = ""
    """The renderer that is chosen for it, where that is the template's."""

    @property
    def chosen(self) -> str:
        return self.renderer or self.name


@cache
def _core(special: tuple[str, ...], marks: tuple[str, ...]) -> str:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    core.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    core.add_tokens([AddedToken(text, normalized=False) for text in marks])
    return str(core.to_str())


def tokenizer_of(family: Family) -> PreTrainedTokenizerBase:
    """A tokenizer of the family; its end-of-text token is the first special one."""
    core = Tokenizer.from_str(_core(family.special, family.marks))
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=family.special[0], pad_token=family.special[0])
    made.chat_template = family.template or None
    return made


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TOOL_MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
_TOOLS_INTRO = (
    "# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n"
    "You are provided with function signatures within <tools></tools> XML tags:\\n<tools>"
)
_LAST_QUERY = (
    "{%- set ns = namespace(last=messages | length - 1, seen=false) %}"
    "{%- for m in messages[::-1] %}{%- if not ns.seen and m.role == 'user' %}"
    "{%- set ns.seen = true %}{%- set ns.last = messages | length - 1 - loop.index0 %}{%- endif %}{%- endfor %}"
)
_CHATML_TOOL = (
    "{%- elif m.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}"
    "{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}"
)
QWEN3 = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}"
    "{{- '" + _TOOLS_INTRO + "' }}{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}"
    "{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n'
    "</tool_call><|im_end|>\\n' }}"
    "{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}"
    "{%- endif %}" + _LAST_QUERY + "{%- for m in messages %}"
    "{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}"
    "{%- set thought = m.reasoning_content or '' %}"
    "{%- if loop.index0 > ns.last and (loop.last or thought) %}"
    "{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + m.content.lstrip('\\n') }}"
    "{%- else %}{{- m.content }}{%- endif %}"
    "{%- for call in m.tool_calls or [] %}{%- if not loop.first or m.content %}{{- '\\n' }}{%- endif %}"
    '{{- \'<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}"
    + _CHATML_TOOL
    + "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)
CODER = (
    "{%- if messages[0].role == 'system' or tools %}{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- endif %}"
    "{%- for tool in tools or [] %}{{- '\\n' + (tool.function | tojson) }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{%- if m.role == 'user' %}{{- '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant' }}"
    "{%- if m.content or not m.tool_calls %}{{- '\\n' + m.content }}{%- endif %}"
    "{%- for call in m.tool_calls or [] %}{{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}"
    "{%- for name, value in call.function.arguments.items() %}{{- '<parameter=' + name + '>\\n' }}"
    "{{- (value if value is string else value | tojson) + '\\n</parameter>\\n' }}{%- endfor %}"
    "{{- '</function>\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}"
    + _CHATML_TOOL
    + "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
KIMI = (
    "{%- if tools %}{{- '<|im_system|>tool_declare<|im_middle|>' + (tools | tojson(separators=(',', ':'), sort_keys=true)) "
    "+ '<|im_end|>' }}{%- endif %}"
    "{%- for m in messages %}{%- if loop.first and m.role != 'system' %}"
    "{{- '<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>\\n' }}"
    "{%- endif %}{%- if m.role in ('user', 'assistant') %}"
    "{{- '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' + m.content }}"
    "{%- else %}{{- '<|im_system|>' + (m.name or m.role) + '<|im_middle|>' }}"
    "{%- if m.role == 'tool' %}{{- '## Return of ' + m.tool_call_id + '\\n' }}{%- endif %}{{- m.content }}{%- endif %}"
    "{%- if m.tool_calls %}{{- '<|tool_calls_section_begin|>' }}{%- for call in m.tool_calls %}"
    "{{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' + (call.function.arguments | tojson) }}"
    "{{- '<|tool_call_end|>' }}{%- endfor %}{{- '<|tool_calls_section_end|>' }}{%- endif %}{{- '<|im_end|>' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_assistant|>assistant<|im_middle|>' }}{%- endif %}"
)
DEEPSEEK = (
    "{{- '<｜begin▁of▁sentence｜>' }}{%- for m in messages %}"
    "{%- set after_tool = loop.index0 > 0 and messages[loop.index0 - 1].role == 'tool' %}"
    "{%- if m.role == 'system' %}{{- m.content }}"
    "{%- elif m.role == 'user' %}{{- '<｜User｜>' + m.content }}"
    "{%- elif m.role == 'assistant' %}{%- if not after_tool %}{{- '<｜Assistant｜>' }}{%- endif %}{{- m.content }}"
    "{%- if m.tool_calls %}{{- '<｜tool▁calls▁begin｜>' }}{%- for call in m.tool_calls %}"
    "{{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' }}"
    "{{- (call.function.arguments | tojson) + '\\n```<｜tool▁call▁end｜>' }}{%- endfor %}"
    "{{- '<｜tool▁calls▁end｜>' }}{%- endif %}{{- '<｜end▁of▁sentence｜>' }}"
    "{%- elif m.role == 'tool' %}{%- if not after_tool %}{{- '<｜tool▁outputs▁begin｜>' }}{%- endif %}"
    "{{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<｜tool▁outputs▁end｜>' }}{%- endif %}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt and messages[-1].role != 'tool' %}{{- '<｜Assistant｜>' }}{%- endif %}"
)
GLM45 = (
    "{{- '[gMASK]<sop>' }}{%- if tools %}{{- '<|system|>\\n" + _TOOLS_INTRO + "\\n' }}"
    "{%- for tool in tools %}{{- (tool | tojson) + '\\n' }}{%- endfor %}"
    "{{- '</tools>\\n\\nFor each function call, output the function name and arguments within the following XML format:\\n"
    "<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>\\n<arg_value>{arg-value-1}</arg_value>\\n"
    "<arg_key>{arg-key-2}</arg_key>\\n<arg_value>{arg-value-2}</arg_value>\\n...\\n</tool_call>' }}{%- endif %}"
    + _LAST_QUERY
    + "{%- for m in messages %}{%- if m.role in ('system', 'user') %}{{- '<|' + m.role + '|>\\n' + m.content }}"
    "{%- elif m.role == 'assistant' %}{{- '<|assistant|>\\n<think>' }}"
    "{%- if loop.index0 > ns.last %}{{- (m.reasoning_content or '').strip() }}{%- endif %}{{- '</think>' }}"
    "{%- if m.content.strip() %}{{- '\\n' + m.content.strip() }}{%- endif %}"
    "{%- for call in m.tool_calls or [] %}{{- '\\n<tool_call>' + call.function.name + '\\n' }}"
    "{%- for name, value in call.function.arguments.items() %}{{- '<arg_key>' + name + '</arg_key>\\n<arg_value>' }}"
    "{{- (value if value is string else value | tojson) + '</arg_value>\\n' }}{%- endfor %}{{- '</tool_call>' }}"
    "{%- endfor %}"
    "{%- elif m.role == 'tool' %}{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "{{- '<|observation|>' }}{%- endif %}{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"
)
LLAMA3 = (
    "{%- set head = '<|start_header_id|>' %}{%- set mid = '<|end_header_id|>\\n\\n' %}"
    "{{- '<|begin_of_text|>' + head + 'system' + mid }}"
    "{%- if tools is not none %}{{- 'Environment: ipython\\n' }}{%- endif %}"
    "{{- 'Cutting Knowledge Date: December 2023\\nToday Date: ' + (date_string or '26 Jul 2024') + '\\n\\n' }}"
    "{%- set rest = messages %}{%- if messages[0].role == 'system' %}{{- messages[0].content.strip() }}"
    "{%- set rest = messages[1:] %}{%- endif %}{{- '<|eot_id|>' }}"
    "{%- if tools is not none %}{{- head + 'user' + mid + 'Given the following functions, please respond with a JSON for a "
    "function call with its proper arguments that best answers the given prompt.\\n\\nRespond in the format "
    '{"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.\\n\\n\' }}'
    "{%- for tool in tools %}{{- (tool | tojson(indent=4)) + '\\n\\n' }}{%- endfor %}"
    "{{- rest[0].content.strip() + '<|eot_id|>' }}{%- set rest = rest[1:] %}{%- endif %}"
    "{%- for m in rest %}{%- if m.tool_calls %}{{- head + 'assistant' + mid }}"
    '{{- \'{"name": "\' + m.tool_calls[0].function.name + \'", "parameters": \' }}'
    "{{- (m.tool_calls[0].function.arguments | tojson) + '}<|eot_id|>' }}"
    "{%- elif m.role == 'tool' %}{{- head + 'ipython' + mid + (m.content | tojson) + '<|eot_id|>' }}"
    "{%- else %}{{- head + m.role + mid + m.content.strip() + '<|eot_id|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- head + 'assistant' + mid }}{%- endif %}"
)
HARMONY = (
    "{{- '<|start|>system<|message|>You are a model.<|end|>' }}"
    "{%- if tools or messages[0].role == 'system' %}{{- '<|start|>developer<|message|>' }}"
    "{%- if messages[0].role == 'system' %}{{- '# Instructions\\n\\n' + messages[0].content }}{%- endif %}"
    "{%- for tool in tools or [] %}{{- '\\n' + (tool.function | tojson) }}{%- endfor %}{{- '<|end|>' }}{%- endif %}"
    "{%- set ns = namespace(called='') %}{%- for m in messages %}"
    "{%- if m.role == 'user' %}{{- '<|start|>user<|message|>' + m.content + '<|end|>' }}"
    "{%- elif m.role == 'assistant' and m.tool_calls %}{%- set call = m.tool_calls[0].function %}"
    "{%- if m.reasoning_content %}"
    "{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.reasoning_content + '<|end|>' }}{%- endif %}"
    "{{- '<|start|>assistant<|channel|>commentary to=functions.' + call.name + ' <|constrain|>json<|message|>' }}"
    "{{- (call.arguments | tojson) + '<|call|>' }}{%- set ns.called = call.name %}"
    "{%- elif m.role == 'assistant' %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
    "{{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
    "{%- elif m.role == 'tool' %}{%- if not ns.called %}{{- raise_exception('a tool message without a call') }}{%- endif %}"
    "{{- '<|start|>functions.' + ns.called + ' to=assistant<|channel|>commentary<|message|>' + m.content + '<|end|>' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"
)
_VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_GLM_MARKS = (*_TOOL_MARKS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_GLM = ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
_KIMI = (
    "[EOS]", "[BOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>", "<|tool_call_end|>",
)  # fmt: skip
_DEEPSEEK = tuple(
    f"<｜{name}｜>"
    for name in (
        "end▁of▁sentence", "begin▁of▁sentence", "User", "Assistant", "tool▁calls▁begin", "tool▁calls▁end",
        "tool▁call▁begin", "tool▁call▁end", "tool▁sep", "tool▁outputs▁begin", "tool▁outputs▁end",
        "tool▁output▁begin", "tool▁output▁end",
    )
)  # fmt: skip
_TASKS = tuple(f"<｜{name}｜>" for name in ("action", "query", "authority", "domain", "title", "read_url"))
_LLAMA = (
    "<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>",
)  # fmt: skip
_HARMONY = (
    "<|endoftext|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|channel|>", "<|message|>", "<|constrain|>",
)  # fmt: skip
_MINIMAX_MARKS = ("<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>")
_MEDIA = ("<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>")

FAMILIES = (
    Family("qwen3", _CHATML, _TOOL_MARKS, QWEN3),
    Family("qwen3-coder", _CHATML, _TOOL_MARKS, CODER, renderer="template"),
    Family("qwen3.5", (*_CHATML, *_VISION), _TOOL_MARKS, thoughts=True),
    Family("qwen3.6", (*_CHATML, *_VISION), _TOOL_MARKS, thoughts=True),
    Family("kimi-k2", _KIMI, (), KIMI),
    Family("kimi-k2.5", (*_KIMI, *_MEDIA), ("<think>", "</think>"), thoughts=True),
    Family("deepseek-v3", _DEEPSEEK, (), DEEPSEEK),
    Family("deepseek-v4", (*_DEEPSEEK, "<｜latest_reminder｜>", *_TASKS, "｜DSML｜"), ("<think>", "</think>")),
    Family("glm-4.5", _GLM, _GLM_MARKS, GLM45),
    Family("glm-5", _GLM, _GLM_MARKS, thoughts=True),
    Family("llama-3", _LLAMA, (), LLAMA3, parallel=False),
    Family("gpt-oss", _HARMONY, (), HARMONY, parallel=False, renderer="template"),
    Family("minimax-m2", ("[e~[", "]~!b[", "]~b]"), _MINIMAX_MARKS, thoughts=True),
    Family("nemotron-3", ("<|im_end|>", "<|im_start|>", "<|endoftext|>"), _TOOL_MARKS, thoughts=True),
)
