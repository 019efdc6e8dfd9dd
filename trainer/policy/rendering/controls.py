"""Text from outside and control tokens: the text of a control token, said by a user or a tool, stays ordinary text.

Messages are masked before a template or a renderer sees them: each text of an added token in them is replaced by an
escape of private-use characters. `SafeTokenizer` is what templates and renderers encode with. It turns the escapes back
into the characters that they stand for, cut after the first one, so that no added token matches.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from trainer.policy.chat import Message, PromptTooLong

SAID = ("content", "reasoning_content")
ESCAPES = ("\ue000", "\ue001")
"""Private-use characters that stand around a control token's text while it is rendered."""
PREFIX = 2
"""Characters by which control tokens are grouped: models have hundreds, and text is searched for the few prefixes."""
PIECE = 1 << 16
"""Characters that are tokenised at once where a bound holds; small enough to stop soon after it is passed."""
LONG = 1 << 13
"""Characters from which a text is tokenised without the interpreter's lock, so that other threads go on."""
PIECE_SLACK = 8
"""Tokens by which a cut in a text may raise its count. Cuts are made before white space, where most tokenizers cut, too."""


class SafeTokenizer:
    """A tokenizer whose control tokens are reached by id or by a template's own text, never by text from outside.

    It has the attributes and methods that `renderers.Tokenizer` asks for.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.name_or_path = str(tokenizer.name_or_path or "")
        self.unk_token_id: int | None = tokenizer.unk_token_id
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self.all_special_tokens: list[str] = list(tokenizer.all_special_tokens)
        self.chat_template = tokenizer.chat_template
        self.added: dict[str, int] = {
            text: number for text, number in tokenizer.get_added_vocab().items() if len(text) > 1 and not text.isspace()
        }
        self._prefixes, self.control = _expression(self.added)

    # -- what renderers call ---------------------------------------------------------------------------

    def encode(self, text: str, *_: Any, **__: Any) -> list[int]:
        """Token ids without the tokenizer's own BOS and EOS; escapes become ordinary characters."""
        return self.ids(text)

    def decode(self, token_ids: Iterable[int], *_: Any, **__: Any) -> str:
        """Text with all special tokens shown."""
        return str(
            self.tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self.tokenizer.convert_tokens_to_ids(tokens)

    def apply_chat_template(self, messages: Sequence[Message], *, tokenize: bool = True, **kwargs: Any) -> Any:
        kwargs.pop("return_dict", None)
        text = str(self.tokenizer.apply_chat_template(cast(Any, list(messages)), tokenize=False, **kwargs))
        return self.ids(text) if tokenize else text

    # -- masking ---------------------------------------------------------------------------------------

    def safe(self, message: Message) -> dict[str, Any]:
        """Without control tokens in what is said, thought or handed to a tool."""
        safe = {n: self.mask(v) if n in SAID and isinstance(v, str) else v for n, v in message.items()}
        if calls := message.get("tool_calls"):
            safe["tool_calls"] = [self._mask_all(call) for call in calls]
        return safe

    def safe_tools(self, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
        """Tool schemas without control tokens; None for none."""
        return [self._mask_all(tool) for tool in tools] or None

    def mask(self, content: str) -> str:
        opening, closing = ESCAPES
        plain = content.replace(opening, "").replace(closing, "")
        if not any(prefix in plain for prefix in self._prefixes):  # far faster than the expression
            return plain
        return self.control.sub(lambda match: opening + match.group().encode().hex() + closing, plain)

    def _mask_all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask(str(key)): self._mask_all(item) for key, item in value.items()}
        return [self._mask_all(item) for item in value] if isinstance(value, list | tuple) else value

    # -- encoding --------------------------------------------------------------------------------------

    def ids(self, text: str, max_tokens: int | None = None) -> list[int]:
        """Token ids of a rendering. Raises PromptTooLong soon after more than `max_tokens` tokens are counted."""
        opening, closing = ESCAPES
        ids: list[int] = []
        for position, part in enumerate(re.split(f"{opening}([0-9a-f]*){closing}", text)):
            if position % 2:
                literal = bytes.fromhex(part).decode()
                ids += self.plain(literal[0]) + self.plain(literal[1:])
            elif part:
                if max_tokens is not None and len(part) > PIECE:
                    self.check(part, before=len(ids), max_tokens=max_tokens)
                ids += self.plain(part)
            if max_tokens is not None and len(ids) > max_tokens:
                raise PromptTooLong(len(ids), max_tokens)
        return ids

    def check(self, text: str, *, before: int, max_tokens: int) -> int:
        """Counts a long text in pieces; a lower bound. Raises PromptTooLong at the piece that passes `max_tokens`."""
        count, start = before, 0
        while start < len(text):
            end = start + PIECE
            if end < len(text):
                end = max(
                    text.rfind(" ", start + PIECE // 2, end),
                    text.rfind("\n", start + PIECE // 2, end),
                    end - PIECE // 2,
                )
            count += max(0, len(self.plain(text[start:end])) - PIECE_SLACK)
            start = end
            if count > max_tokens:
                raise PromptTooLong(count, max_tokens)
        return count

    def plain(self, text: str) -> list[int]:
        """Without the wrapper's preparations for batches where there is the library below it: a request waits for these."""
        library = getattr(self.tokenizer, "backend_tokenizer", None)
        if library is not None and not (library.truncation or library.padding or library.encode_special_tokens):
            if len(text) > LONG:
                return list(library.encode_batch_fast([text], add_special_tokens=False)[0].ids)
            return list(library.encode(text, add_special_tokens=False).ids)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def _expression(texts: Iterable[str]) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """(prefixes, an expression that finds the longest of `texts`), grouped by prefix."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text in sorted(texts, key=len, reverse=True):
        groups[text[:PREFIX]].append(text[PREFIX:])
    parts = [f"{re.escape(prefix)}(?:{'|'.join(map(re.escape, rest))})" for prefix, rest in groups.items()]
    return tuple(groups), re.compile("|".join(parts) or r"(?!)")
