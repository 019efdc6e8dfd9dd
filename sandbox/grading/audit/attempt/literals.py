"""Literals of code in any of the four languages: where code selects by a value, and which values examples name together.

A reader of tokens, no parser: strings, numbers, brackets and operators are enough to see `if x == IN: return OUT`, a `case`, a
match arm, an entry of a table or a list of pairs.
"""

# ruff: noqa: E501 (a pattern stays in one line)
from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

MAX_CHARS = 200_000
MAX_TOKENS = 40_000
MAX_VALUE_TOKENS = 60
TOKEN = re.compile(
    r"""(?P<string>[brfuBRFU]{0,2}(?<!\\)(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|"(?:[^"\\\n]|\\.)*+"|(?<!\w)'(?:[^'\\\n]|\\.)*+'))
      |(?P<number>(?<![\w.])-?\d[\d_]*+(?:\.\d++)?(?:[eE][+-]?\d++)?)
      |(?P<word>[A-Za-z_$]\w*+)
      |(?P<newline>\n)
      |(?P<operator>===|!==|==|!=|=>|->|:=|&&|\|\||::|[\[\](){}:;,=|&.?!<>+*/%^~@`-])""",
    re.X,
)
COMMENTS = {"#": re.compile(r"(?m)(?<![\w'\"])#[^\n]*"), "//": re.compile(r"(?m)(?<![:'\"])//[^\n]*|/\*[\s\S]*?\*/")}
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, frozenset(")]}")
EQUALS = frozenset({"==", "===", "is"})
PREDICATES = frozenset({"startsWith", "startswith", "endsWith", "endswith", "includes", "HasPrefix", "HasSuffix", "Contains",
                        "contains", "starts_with", "ends_with", "eq", "equals", "EqualFold", "has", "isDeepStrictEqual", "DeepEqual", "Equal", "isEqual", "array_equal", "deepEqual", "matches"})  # fmt: skip
WRAPPERS = frozenset({"String", "from", "to_string", "to_owned", "into", "Some", "Ok", "vec", "new", "true", "false", "True",
                      "False", "null", "None", "nil", "undefined", "Decimal", "float", "int", "str", "list", "tuple", "dict",
                      "string", "bool", "float64", "map", "Number", "Map", "as", "f64", "i64", "u64", "Vec", "errors"})  # fmt: skip
PUTS = frozenset({"set", "insert", "put", "Store", "setdefault"})
CONSTANTS = frozenset({"true", "false", "True", "False", "null", "None", "nil", "undefined"})
FAILURES = frozenset({"raise", "throw", "panic", "Err", "Error", "errors", "bail"})


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def is_literal(self) -> bool:
        return self.kind in ("string", "number")


@dataclass(frozen=True, slots=True)
class Choice:
    """Code that gives `output` for `inputs`: literals as texts. `table` names the collection it belongs to, by its start."""

    inputs: tuple[str, ...]
    output: tuple[str, ...]
    start: int
    end: int
    table: int | None = None


@functools.lru_cache(maxsize=256)
def tokens(text: str, *, comments: str = "") -> tuple[Token, ...]:
    """Tokens of code, comments left out (`#` or `//`); of prose without `comments`."""
    text = text[:MAX_CHARS]
    if comments:
        text = COMMENTS[comments].sub(lambda found: " " * len(found.group()), text)
    made = []
    for found in islice(TOKEN.finditer(text), MAX_TOKENS):
        kind = found.lastgroup or ""
        value = found.group()
        if kind == "string":
            value = value.lstrip("brfuBRFU")
            value = value.strip(value[0]) if value[:3] in ('"""', "'''") else value[1:-1]
        elif kind == "number":
            value = value.replace("_", "")
            value = value.removesuffix(".0")
        made.append(Token(kind, value, found.start(), found.end()))
    return tuple(made)


def comment_of(path: str) -> str:
    return "#" if path.endswith((".py", ".pyi", ".pyx", ".sh", ".rb")) else "//"


def literals(text: str, *, comments: str = "") -> set[str]:
    return {token.text for token in tokens(text, comments=comments) if token.is_literal}


@functools.lru_cache(maxsize=256)
def rows(text: str, *, comments: str = "", lines: int = 3) -> tuple[frozenset[str], ...]:
    """The literals that stand together: those of each line, and of each run of `lines` lines."""
    per_line: dict[int, set[str]] = {}
    starts = [0, *(found.end() for found in re.finditer(r"\n", text[:MAX_CHARS]))]
    for token in tokens(text, comments=comments):
        if token.is_literal or token.text in ("true", "false", "True", "False"):
            per_line.setdefault(bisect.bisect_right(starts, token.start), set()).add(token.text)
    each = {number: frozenset(values) for number, values in per_line.items()}
    made = []
    for number, here in each.items():
        made += [here, here.union(*(each[next_] for next_ in range(number + 1, number + lines) if next_ in each))]
    return tuple(dict.fromkeys(made))


PAIR = re.compile(
    r"""(?P<a>"(?:[^"\\\n]|\\.){1,80}"|'(?:[^'\\\n]|\\.){1,80}')\s*(?:[,:]|=>)\s*(?P<b>"(?:[^"\\\n]|\\.){1,80}"|'(?:[^'\\\n]|\\.){1,80}'|-?\d[\d.]*)"""
)
MAX_PAIRS = 400


def every_pair(text: str) -> set[frozenset[str]]:
    """Each two neighbours that a table or a data file names together; the parts of a key that is the text of a row."""
    made = set()
    for found in islice(PAIR.finditer(text[:MAX_CHARS]), 5_000):
        key, value = found["a"][1:-1], found["b"].strip("\"'")
        parts = literals(key) if key[:1] in "([{" else set()
        made.add(frozenset({*(parts if len(parts) > 1 else {key}), value}))
    return made


@functools.lru_cache(maxsize=256)
def pairs(text: str) -> tuple[frozenset[str], ...]:
    """Neighbours of lines that hold many literals: the entries of a table that is written in one line."""
    made = []
    for line in text[:MAX_CHARS].split("\n"):
        found = list(islice(PAIR.finditer(line), MAX_PAIRS)) if len(line) < 20_000 else []
        if len(found) > 2:
            made += [frozenset({m["a"][1:-1], m["b"].strip("\"'")}) for m in found]
    return tuple(dict.fromkeys(made))


def choices(text: str, path: str) -> Iterator[Choice]:
    """Every choice in a piece of code."""
    found = tokens(text, comments=comment_of(path))
    for index, token in enumerate(found):
        before = found[index - 1] if index else None
        if token.text == "in" and token.kind == "word" and index + 1 < len(found) and found[index + 1].text in OPENING:
            yield from _of_membership(found, index)
        elif token.text in EQUALS or (token.kind == "word" and token.text in PREDICATES):
            yield from _of_comparison(found, index)
        elif token.kind == "word" and token.text in PUTS and index + 2 < len(found) and found[index + 1].text == "(":
            yield from _of_call(found, index)
        elif (
            token.text == "["
            and index + 3 < len(found)
            and before is not None
            and (before.kind == "word" or before.text == ")")
        ):
            yield from _of_subscript(found, index)
        elif token.kind == "word" and token.text == "case":
            yield from _of_case(found, index)
        elif token.is_literal and index + 1 < len(found):
            after = found[index + 1].text
            if after in ("=>", "|") and (before is None or before.text not in ("=", "return", "|")):
                yield from _of_arm(found, index)
            elif after == ":" and before is not None and before.text in ("{", ",", "\n"):
                yield from _of_entry(found, index, (token.text,), index + 2)
        elif token.text in OPENING and before is not None and before.text in ("[", "{", ",", "(", "\n", "&"):
            yield from _of_pair(found, index)


def matching(found: Sequence[Token], index: int) -> int:
    """Index of the bracket that closes the one at `index`; -1 when it is not near."""
    depth = 0
    for position in range(index, min(len(found), index + 400)):
        if found[position].text in OPENING and found[position].kind == "operator":
            depth += 1
        elif found[position].text in CLOSING and found[position].kind == "operator":
            depth -= 1
            if depth == 0:
                return position
    return -1


def _operand(found: Sequence[Token], index: int) -> tuple[tuple[str, ...], int]:
    """Literals of the literal or the bracketed literals at `index`, and where it ends; nothing for anything else."""
    if index >= len(found):
        return (), index
    if found[index].is_literal:
        return (found[index].text,), index + 1
    if found[index].text in OPENING:
        end = matching(found, index)
        inside = found[index + 1 : end] if end > 0 else []
        if inside and all(t.is_literal or t.text in (*OPENING, *CLOSING, ",", ":", "\n") for t in inside):
            return tuple(t.text for t in inside if t.is_literal), end + 1
    return (), index


def _before(found: Sequence[Token], index: int) -> tuple[str, ...]:
    return (found[index - 1].text,) if index and found[index - 1].is_literal else ()


def _of_comparison(found: Sequence[Token], index: int) -> Iterator[Choice]:
    """`if a == IN [and b == IN]: return OUT`, whatever encloses it: the first comparison of a condition speaks for all."""
    first = index
    while first and found[first].kind != "newline" and found[first].text not in ("{", "}", ";"):
        first -= 1
    head = [token.text for token in found[first:index]]
    if any(text in EQUALS or text in PREDICATES for text in head if text not in ("", "is")):
        return
    inputs: list[str] = []
    position = index
    while position < len(found) and position < index + 80:
        token = found[position]
        if token.text in EQUALS and token.kind != "string":
            given, _ = _operand(found, position + 1)
            inputs += given or _before(found, position)
        elif token.text in PREDICATES and position + 1 < len(found) and found[position + 1].text == "(":
            close = matching(found, position + 1)
            inputs += [t.text for t in found[position + 2 : close] if t.is_literal] if close > 0 else []
        elif token.text == "return" or token.kind == "newline":
            break
        position += 1
    if not inputs:
        return
    chained = any(token.text == "?" for token in found[index : position + 1])
    if "return" in head and not chained and not any(word in head for word in ("if", "?")):
        yield Choice(tuple(inputs), ("true",), found[index].start, found[min(position, len(found) - 1)].start)
        return
    output, end = _consequence(found, index)
    if output is not None:
        yield Choice(tuple(inputs), output, found[index].start, end)


def _of_membership(found: Sequence[Token], index: int) -> Iterator[Choice]:
    """`if x in (A, B): return OUT`: one choice for each."""
    inputs, end = _operand(found, index + 1)
    output, stop = _consequence(found, end) if inputs else (None, 0)
    if output is not None:
        for given in inputs:
            yield Choice((given,), output, found[index].start, stop)


def _of_case(found: Sequence[Token], index: int) -> Iterator[Choice]:
    inputs: list[str] = []
    position = index + 1
    while position < len(found) and found[position].text != ":":
        if not (found[position].is_literal or found[position].text in (",", "|", "(", ")", "[", "]")):
            return
        inputs += [found[position].text] if found[position].is_literal else []
        position += 1
    output, end = _consequence(found, position)
    if inputs and output is not None:
        whole = any(token.text in ("(", "[") for token in found[index:position])
        for given in [tuple(inputs)] if whole else [(text,) for text in inputs]:
            yield Choice(given, output, found[index].start, end)


def _of_call(found: Sequence[Token], index: int) -> Iterator[Choice]:
    """`table.set(IN, OUT)`."""
    inputs, end = _operand(found, index + 2)
    if inputs and end < len(found) and found[end].text == ",":
        output, stop = _value(found, end + 1, stops=(")",))
        if output is not None:
            yield Choice(inputs, output, found[index].start, stop)


def _of_subscript(found: Sequence[Token], index: int) -> Iterator[Choice]:
    """`table[IN] = OUT`."""
    end = matching(found, index)
    inside = found[index + 1 : end] if end > 0 else []
    if (
        inside
        and end + 1 < len(found)
        and found[end + 1].text == "="
        and all(t.is_literal or t.text in ",(){}[]" for t in inside)
    ):
        output, stop = _value(found, end + 2, stops=(";", "\n", "}"))
        if output is not None:
            yield Choice(tuple(t.text for t in inside if t.is_literal), output, found[index].start, stop)


def _of_arm(found: Sequence[Token], index: int) -> Iterator[Choice]:
    position = index
    while position < len(found) and found[position].text != "=>" and position < index + 20:
        position += 1
    if position >= len(found) or found[position].text != "=>":
        return
    output, end = _value(found, position + 1, stops=(",", "}"))
    if output is not None:
        yield Choice((found[index].text,), output, found[index].start, end)


def _of_entry(found: Sequence[Token], index: int, inputs: tuple[str, ...], position: int) -> Iterator[Choice]:
    output, end = _value(found, position, stops=(",", "}"))
    if output is not None:
        yield Choice(inputs, output, found[index].start, end, _collection(found, index))


def _of_pair(found: Sequence[Token], index: int) -> Iterator[Choice]:
    """`(IN, OUT)`, `[IN, OUT]` or `{IN, OUT}` in a collection, and `{IN, IN}: OUT`."""
    end = matching(found, index)
    if end < 0 or end + 1 >= len(found):
        return
    if found[end + 1].text == "=>":
        inputs, _ = _operand(found, index)
        output, stop = _value(found, end + 2, stops=(",", "}"))
        if inputs and output is not None:
            yield Choice(inputs, output, found[index].start, stop)
        return
    inside = [token for token in found[index + 1 : end] if token.kind != "newline"]
    if found[end + 1].text == ":" and found[end].text in ("}", ")", "]"):
        inputs, _ = _operand(found, index)
        if inputs:
            yield from _of_entry(found, index, inputs, end + 2)
        return
    if len(inside) < 3 or not inside[0].is_literal or inside[1].text != ",":
        return
    output, stop = _value(found, index + 3, stops=(found[end].text,))
    if output is not None:
        yield Choice((inside[0].text,), output, found[index].start, stop, _collection(found, index))


def _collection(found: Sequence[Token], index: int) -> int:
    """Start of the bracket that encloses the token."""
    depth = 0
    for position in range(index - 1, max(-1, index - 2_000), -1):
        if found[position].kind != "operator":
            continue
        if found[position].text in CLOSING:
            depth += 1
        elif found[position].text in OPENING:
            if depth == 0:
                return found[position].start
            depth -= 1
    return 0


def _consequence(found: Sequence[Token], index: int) -> tuple[tuple[str, ...] | None, int]:
    """What is returned or assigned after a condition; None when it is no literal or nothing near."""
    for position in range(index, min(len(found), index + 60)):
        token = found[position]
        if token.text in FAILURES and token.kind == "word":
            return None, token.end
        if token.kind == "word" and token.text == "return":
            return _value(found, position + 1, stops=(";", "\n", "}"))
        if token.text == "=" and token.kind == "operator":
            return _value(found, position + 1, stops=(";", "\n", "}"))
        if token.text in ("?", "=>") and token.kind == "operator":
            return _value(found, position + 1, stops=(":", ";", "\n", ",", "}"))
        if token.text == "{" and position + 1 < len(found):
            following = position + 1 + (found[position + 1].kind == "newline")
            if following < len(found) and (found[following].is_literal or found[following].text in WRAPPERS):
                return _value(found, following, stops=("}", "\n"))
    return None, found[min(index, len(found) - 1)].end


def _value(found: Sequence[Token], index: int, *, stops: tuple[str, ...]) -> tuple[tuple[str, ...] | None, int]:
    """The literals of an expression that holds nothing but literals; None for anything else."""
    depth, given = 0, list[str]()
    for position in range(index, min(len(found), index + MAX_VALUE_TOKENS)):
        token = found[position]
        if token.kind == "operator" and depth == 0 and token.text in stops:
            return (tuple(given) or None), token.start
        if token.kind == "newline":
            if depth == 0 and "\n" in stops and (given or position > index):
                return (tuple(given) or None), token.start
            continue
        if token.is_literal:
            given.append(token.text)
        elif token.kind == "word":
            if token.text in CONSTANTS:
                given.append(token.text)
            elif (
                token.text not in WRAPPERS
                and not token.text[0].isupper()
                and not (position + 1 < len(found) and found[position + 1].text == ":")
            ):
                return None, token.start
        elif token.text in OPENING:
            depth += 1
        elif token.text in CLOSING:
            depth -= 1
            if depth < 0:
                return (tuple(given) or None), token.start
        elif token.text not in (",", ":", "::", ".", "&", "!", "?"):
            return None, token.start
    return (tuple(given) or None), found[min(index + MAX_VALUE_TOKENS, len(found) - 1)].end
