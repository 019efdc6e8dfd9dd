"""The toy policy's tokenizer: a small byte-level BPE in which tool-call JSON costs one token per literal piece.

Two choices make exact copying learnable for a tiny model. Operators, single digits and indentation are isolated,
so that a line has the same tokens in a file listing and inside an edit. And merges are learned from made-up names
and library source only, so that every identifier, seen or unseen, is spelled from several pieces.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from sandbox.tasks.procedural import ISSUES, TEST_COMMAND, write_function
from sandbox.tasks.procedural.vocabulary import COMMON, syllable_word
from trainer.midtrain.synthetic import library_source

VOCABULARY = 1024
SPECIAL = ("<|pad|>", "<|bos|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")

CALL_PIECES = (
    '{"name": "grep", "arguments": {"pattern": "def ',
    '{"name": "grep", "arguments": {"pattern": "',
    '{"name": "read_file", "arguments": {"path": "',
    '{"name": "list_dir", "arguments": {"path": "',
    '{"name": "edit_file", "arguments": {"path": "',
    '", "old_string": "',
    '", "new_string": "',
    '{"name": "write_file", "arguments": {"path": "',
    '", "content": "',
    '{"name": "delete_file", "arguments": {"path": "',
    '{"name": "read_lints", "arguments": {}}',
    '{"name": "run_terminal_cmd", "arguments": {"command": "',
    '{"name": "run_terminal_cmd", "arguments": {"command": "' + TEST_COMMAND + '"}}',
    '{"name": "finish", "arguments": {}}',
    '"}}',
)
"""Literal pieces of tool calls in the JSON that `json.dumps` writes."""

PIECES = Regex(
    r"\n|(?<=[\n|]) +"  # a line break; the indentation after it (or after the line number of a listing)
    r"|\.py\b| ?[A-Za-z]+| ?\d|_"  # a module's suffix, a word, one digit, the underscore of a name
    r"| ?(?:'''|[-+*/%<>=!]=|\*\*|//|->|[^\sA-Za-z\d_])"  # one operator or punctuation mark
    r"| +(?= )|\s"
)

CHAT_TEMPLATE = """\
{{- '<|bos|>' -}}
{%- for message in messages -%}
{%- if message.role in ('user', 'tool') -%}
{{- '<|' + message.role + '|>' + message.content + '<|end|>' -}}
{%- elif message.role == 'assistant' -%}
{{- '<|assistant|>' + (message.content or '') -}}
{%- for call in message.tool_calls or [] -%}
{{- ('' if loop.first else '\\n') + '{"name": "' + call.function.name + '", "arguments": ' -}}
{{- (call.function.arguments | tojson) + '}' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""
"""Roles as special tokens. System text and tool schemas are left out: this policy knows its tools by training."""


def _corpus(seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(6000):
        function = write_function(rng, "train")
        names = {role: name if name in COMMON else syllable_word(rng, "train") for role, name in function.names.items()}
        names["many"] += "s"
        names["others"] += "s"
        invented = replace(function, names=names, name=f"{syllable_word(rng, 'train')}_{syllable_word(rng, 'train')}")
        lines = invented.head + invented.body()
        yield "\n".join(f"{number}|{line}" for number, line in enumerate(lines, 1))
        call = f"`{invented.name}([{rng.randint(0, 9)}, {rng.randint(0, 9)}], {rng.randint(0, 9)})`"
        yield rng.choice(ISSUES).format(
            call=call, got=f"[{rng.randint(0, 99)}, {rng.randint(-9, 9)}]", expected=rng.randint(0, 99)
        )
        path = f"{syllable_word(rng, 'train')}.py"
        yield f"{path}:1:def {invented.name}(\nedited {path}:4\n1 passed\nexit code 0"
        yield f"1 failed: got {rng.randint(0, 99)}\nexit code 1"
        yield f"error: old_string not found in {path}\nerror: no such file: {path}\nno matches\n{path}"
    yield from library_source(600_000, seed)


def build_tokenizer(seed: int = 0) -> PreTrainedTokenizerFast:
    """Train the tokenizer from scratch (seconds). Every checkpoint is bound to one result: build once, then ship it."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        _corpus(seed),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY - len(CALL_PIECES),
            special_tokens=list(SPECIAL),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    core.add_tokens([AddedToken(piece, normalized=False) for piece in CALL_PIECES])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|bos|>",
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|user|>", "<|assistant|>", "<|tool|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
