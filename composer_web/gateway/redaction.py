"""Redaction before storage: secrets, e-mail addresses, and patterns configured by the installation.

In texts, a match becomes `[redacted:kind]`. In tokens, each token that overlaps a match becomes a filler and is not
trained on. The number of tokens stays the same, so every other token keeps its position and log-probability. The
fillers change the context of later tokens; the learner's importance correction sees and bounds that change.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.policy.rendering.chat import ChatRenderer

START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
"""Start of a word, also after an escaped line break in JSON."""
SECRETS: tuple[tuple[str, str], ...] = (
    (
        "private-key",
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]{0,20000}?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    ),
    ("token", START + r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,200}|\boc_[A-Za-z0-9_-]{20,200}"),
    ("token", START + r"(?:gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{16,200})"),
    ("token", START + r"(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{30,60}|\bxox[abeprs]-[A-Za-z0-9-]{10,200}"),
    ("token", START + r"eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,4000}(?:\.[A-Za-z0-9_-]{0,2000})?"),
    ("token", r"(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{12,2000}"),
    ("password", r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,200}:[^\s/@]{1,200}@"),
    (
        "password",
        r"(?i)\b[\w-]{0,40}(?:password|passwd|secret|api[_-]?key|access[_-]?token|auth[_-]?token)[\w-]{0,20}"
        r"\\{0,4}[\"']?\s{0,3}[:=]\s{0,3}\\{0,4}[\"']?[^\s\"'\\]{6,500}",
    ),
    ("email", START + r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b"),
)
ROUNDS = 4
MAX = 10_000
"""Maximum number of matches in one text. Beyond it, the whole text is redacted."""


@dataclass(frozen=True, slots=True)
class Redactor:
    """Redacts values and counts the redactions."""

    rules: tuple[tuple[str, re.Pattern[str]], ...]

    def text(self, text: str) -> tuple[str, int]:
        count = 0
        for kind, rule in self.rules:
            text, found = rule.subn(f"[redacted:{kind}]", text)
            count += found
        return text, count

    def value(self, value: Any) -> tuple[Any, int]:
        """Redact all texts in lists and mappings, including keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            parts = [self.value(item) for item in value]
            return [item for item, _ in parts], sum(count for _, count in parts)
        if isinstance(value, dict):
            pairs = [(self.text(str(key)), self.value(item)) for key, item in value.items()]
            return {key[0]: item[0] for key, item in pairs}, sum(key[1] + item[1] for key, item in pairs)
        return value, 0

    def matches(self, value: Any) -> set[str]:
        """Redacted strings of a value, both verbatim and JSON-escaped, because calls are sampled escaped."""
        if isinstance(value, str):
            found = {match.group() for _, rule in self.rules for match in rule.finditer(value)}
            return found | {json.dumps(text, ensure_ascii=False)[1:-1] for text in found}
        if isinstance(value, dict):
            value = [*map(str, value), *value.values()]
        return set().union(*map(self.matches, value)) if isinstance(value, list | tuple) else set()

    def tokens(
        self, token_ids: Sequence[int], render: ChatRenderer, known: Iterable[str] = ()
    ) -> tuple[list[int], set[int]]:
        """Token ids with fillers, and the fillers' positions. `known` are texts to redact in addition to the rules.
        Text that still matches after some rounds is redacted as a whole."""
        literal = re.compile("|".join(map(re.escape, sorted(set(known), key=len, reverse=True))) or r"(?!)")
        ids, out = list(token_ids), set[int]()
        filler = int(render.tokenizer("x", add_special_tokens=False)["input_ids"][0])
        for _ in range(ROUNDS):
            text = _decode(ids, render)
            spans = self._spans(text) | {match.span() for match in literal.finditer(text)}
            if not spans:
                return ids, out
            if len(spans) > MAX:
                break
            for start, end in spans:
                # The first token that reaches beyond `start`, and the first that reaches `end`.
                first = bisect.bisect_right(range(1, len(ids) + 1), start, key=lambda n: len(_decode(ids[:n], render)))
                last = bisect.bisect_left(range(1, len(ids) + 1), end, key=lambda n: len(_decode(ids[:n], render)))
                out.update(range(first, min(last + 1, len(ids))))
            ids = [filler if place in out else token for place, token in enumerate(ids)]
        return [filler] * len(ids), set(range(len(ids)))

    def _spans(self, text: str) -> set[tuple[int, int]]:
        return {match.span() for _, rule in self.rules for match in rule.finditer(text)}


def _decode(token_ids: Sequence[int], render: ChatRenderer) -> str:
    return str(render.tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


@lru_cache(maxsize=32)
def _compiled(patterns: tuple[str, ...]) -> Redactor:
    own = (("pattern", re.compile(pattern)) for pattern in patterns)
    return Redactor((*((kind, re.compile(rule)) for kind, rule in SECRETS), *own))


def redactor(patterns: Iterable[str]) -> Redactor:
    """Built-in rules and the installation's."""
    return _compiled(tuple(patterns))
