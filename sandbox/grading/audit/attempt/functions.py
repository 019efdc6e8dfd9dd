"""Functions of a file in Python, JavaScript, Go or Rust: name, parameters and body, without a parser for the last three."""

# ruff: noqa: E501 (a pattern stays in one line)
from __future__ import annotations

import ast
import functools
import re
import warnings
from dataclasses import dataclass

from sandbox.grading.audit.attempt.paths import is_python
from sandbox.grading.audit.flow.braces import mask
from sandbox.grading.audit.flow.languages import language_of

MAX_FUNCTIONS = 500
HEAD = re.compile(
    r"\bfn[ \t]++(?P<rust>\w++)(?:<[^>{]{0,120}>)?[ \t]*+\("
    r"|\bfunc[ \t]++(?:\([^)\n]{0,80}\)[ \t]*+)?(?P<go>\w++)(?:\[[^\]\n]{0,80}\])?\("
    r"|\bfunction[ \t]*+\*?[ \t]*+(?P<js>[\w$]++)[ \t]*+\("
    r"|(?:\b(?:const|let|var)[ \t]++|\bexports\.)(?P<arrow>[\w$]++)[ \t]*+=[ \t]*+(?:async\b[ \t]*+)?(?:function\b[ \t]*+\w*+[ \t]*+)?\("
    r"|^[ \t]++(?:static[ \t]++|async[ \t]++)*+(?P<method>[\w$]++)[ \t]*+\((?=[^()\n]*\)[ \t]*+\{)",
    re.M,
)
NO_METHODS = frozenset({"if", "for", "while", "switch", "catch", "return", "function", "match", "loop"})


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    parameters: tuple[str, ...]
    """Names, without `self`, `_` and what a name with `_` before it says to be unused."""
    body: str
    """As it is written, comments and docstring included."""
    code: str
    """The body with comments, docstring and the inside of strings blanked."""
    start: int
    end: int


@functools.lru_cache(maxsize=128)
def functions(path: str, text: str) -> tuple[Function, ...]:
    """The functions of a file; nothing for languages that are not read or text that does not parse."""
    if is_python(path):
        return tuple(_python(text))
    language = language_of(path)
    if language is None:
        return ()
    code, _ = mask(text, language)
    found: list[Function] = []
    for head in list(HEAD.finditer(code))[:MAX_FUNCTIONS]:
        name = next(filter(None, head.groupdict().values()))
        opening = head.end() - 1
        close = _closing(code, opening)
        arrow = re.compile(r"\s*=>\s*(?!\{)").match(code, close + 1) if close > 0 and head["arrow"] else None
        if arrow:
            end = _end_of_expression(code, arrow.end())
            given = _parameters(code[opening + 1 : close])
            found.append(Function(name, given, text[arrow.end() : end], code[arrow.end() : end], head.start(), end))
            continue
        brace = code.find("{", close) if close > 0 else -1
        if name in NO_METHODS or brace < 0 or ";" in code[close:brace] or "\n\n" in code[close:brace]:
            continue
        end = _closing(code, brace)
        if end < 0:
            continue
        given = _parameters(code[opening + 1 : close])
        found.append(Function(name, given, text[brace + 1 : end], code[brace + 1 : end], head.start(), end + 1))
    return tuple(found)


def _end_of_expression(code: str, start: int) -> int:
    """Where the expression of an arrow function ends: at a `;`, or at a line's end outside of brackets."""
    depth = 0
    for position in range(start, min(len(code), start + 4_000)):
        c = code[position]
        depth += (c in "([{") - (c in ")]}")
        if depth < 0 or (
            depth == 0 and (c == ";" or (c == "\n" and code[position + 1 : position + 2] not in (" ", "\t", ".")))
        ):
            return position
    return min(len(code), start + 4_000)


def _closing(code: str, start: int) -> int:
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth = 0
    for position in range(start, min(len(code), start + 40_000)):
        if code[position] in pairs:
            depth += 1
        elif code[position] in ")}]":
            depth -= 1
            if depth == 0:
                return position
    return -1


def _parameters(text: str) -> tuple[str, ...]:
    names = []
    for part in re.split(r",(?![^<(\[{]*[>)\]}])", text):
        found = re.search(r"[A-Za-z_$][\w$]*", re.sub(r"^\s*(mut|ref|&|\.\.\.)+\s*", "", part))
        if found and not found[0].startswith("_") and found[0] not in ("self", "mut", "this"):
            names.append(found[0])
    return tuple(names)


def _python(text: str) -> list[Function]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found: list[Function] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or len(found) >= MAX_FUNCTIONS:
            continue
        statements = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        names = tuple(a.arg for a in every if a.arg not in ("self", "cls") and not a.arg.startswith("_"))
        start, end = starts[node.lineno - 1], starts[node.end_lineno or node.lineno]
        body = "\n".join(ast.unparse(statement) for statement in statements)
        found.append(Function(node.name, names, body, body, start, min(end, len(text))))
    return found
