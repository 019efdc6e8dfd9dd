"""Text from outside and control tokens: the text of a control token, said by a user or a tool, stays ordinary text.

Messages are masked before a template or a renderer sees them: each text of an added token in them is replaced by an
escape of private-use characters. `SafeTokenizer` is what templates and renderers encode with. It turns the escapes back
into the characters that they stand for, cut after the first one, so that no added token matches.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from trainer.policy.rendering.chat import Message, PromptTooLong

SAID = ("content", "reasoning_content")
MASK, MASK_END = "\ue000", "\ue001"
"""Private-use characters around the number of a control token, which stands for its text while it is rendered."""
FIRST_MASKED = 0xF0000
"""Private-use character of the control token of number 0."""
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
        groups, self.control = _expression(self.added)
        self._controls = [prefix + rest for prefix, group in groups.items() for rest in group]
        self._longest = max(map(len, self._controls), default=1)
        self._masks: dict[str, list[tuple[str, str]]] = {prefix: [] for prefix in groups}
        """Each control token with its mask, by prefix."""
        for number, control in enumerate(self._controls):
            mask = f"{MASK}{chr(FIRST_MASKED + number)}{MASK_END}"
            self._masks[control[:PREFIX]].append((control, mask))
        self._literals: dict[int, list[int]] = {}
        """Ids of each control token's text as ordinary characters, by its number; filled as they are met."""

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
        """In pieces: one call over megabytes would keep the interpreter from all other threads until it ends."""
        plain = content.replace(MASK, "").replace(MASK_END, "")  # before the cuts: it may join a control token
        return "".join(map(self._mask, self._pieces(plain)))

    def _pieces(self, content: str) -> Iterator[str]:
        """Pieces of about `PIECE` characters; no control token lies across a cut."""
        start = 0
        while len(content) - start > PIECE:
            end = start + PIECE
            around = content[end - self._longest : end + self._longest]
            while (inside := self._across(around, self._longest)) is not None:
                end += inside
                around = content[end - self._longest : end + self._longest]
            yield content[start:end]
            start = end
        yield content[start:]

    def _across(self, text: str, cut: int) -> int | None:
        """Characters after the cut at which a control token that lies across it ends; None where none does."""
        ends = (
            at + len(control) - cut
            for control in self._controls
            if (at := text.find(control, max(0, cut - len(control) + 1), cut - 1 + len(control))) >= 0
        )
        return max(ends, default=None)

    def _mask(self, plain: str) -> str:
        for prefix, masks in self._masks.items():
            if prefix in plain:
                # An expression is slower, and keeps the interpreter from other threads while it searches.
                for control, mask in masks:
                    plain = plain.replace(control, mask)
        return plain

    def _mask_all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask(str(key)): self._mask_all(item) for key, item in value.items()}
        return [self._mask_all(item) for item in value] if isinstance(value, list | tuple) else value

    # -- encoding --------------------------------------------------------------------------------------

    def ids(self, text: str, max_tokens: int | None = None) -> list[int]:
        """Token ids of a rendering. Raises PromptTooLong soon after more than `max_tokens` tokens are counted."""
        ids: list[int] = []
        for part, masked in self._parts(text):
            if part:
                if max_tokens is not None and len(part) > PIECE:
                    self.check(part, before=len(ids), max_tokens=max_tokens)
                ids += self.plain(part)
            if masked is not None:
                ids += self._literal(masked)
            if max_tokens is not None and len(ids) > max_tokens:
                raise PromptTooLong(len(ids), max_tokens)
        return ids

    def _parts(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Texts of a rendering, each with the number of the masked control token that follows it. One after the other: a
        caller that stops early does not pay for the rest."""
        start = begin = 0
        while (at := text.find(MASK, begin)) >= 0:
            number = ord(text[at + 1]) - FIRST_MASKED if text[at + 2 : at + 3] == MASK_END else -1
            begin = at + 1
            if 0 <= number < len(self._controls):
                yield text[start:at], number
                start = begin = at + 3
        yield text[start:], None

    def _literal(self, number: int) -> list[int]:
        """A control token's text cut after its first character matches no control token."""
        found = self._literals.get(number)
        if found is None:
            control = self._controls[number]
            found = self._literals[number] = self.plain(control[0]) + self.plain(control[1:])
        return found

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


def _expression(texts: Iterable[str]) -> tuple[dict[str, list[str]], re.Pattern[str]]:
    """(rests of the texts by prefix, the longest first; an expression that finds the longest of `texts`)."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text in sorted(texts, key=len, reverse=True):
        groups[text[:PREFIX]].append(text[PREFIX:])
    parts = [f"{re.escape(prefix)}(?:{'|'.join(map(re.escape, rest))})" for prefix, rest in groups.items()]
    return groups, re.compile("|".join(parts) or r"(?!)")
