"""Top-level declarations of Go test files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from sandbox.grading.canaries.go import GoTests
from sandbox.grading.canaries.scanning import brackets, mask
from sandbox.grading.observations.brace_tests.items import Item, at_depth_0

KEYWORD = re.compile(rb"(?:^|(?<=;))[ \t]*(?P<word>func|var|const|type|import|package)\b", re.MULTILINE)
FUNCTION = re.compile(rb"[ \t]*func\s*(?:\((?P<receiver>[^()]*)\)\s*)?(?P<name>\w+)")
DECLARED = re.compile(rb"[ \t]*(?:var|const|type)\s+(?P<names>\w+(?:\s*,\s*\w+)*)")
GROUP = re.compile(rb"[ \t]*(?P<kind>var|const|type)\s*(?P<open>\()")
SPEC = re.compile(rb"^[ \t]*(?P<names>\w+(?:\s*,\s*\w+)*)(?=[ \t=])", re.MULTILINE)
GOES_ON = (b"+", b"-", b"*", b"/", b"|", b"&", b",", b"=", b".", b"<", b">")
BOUND = re.compile(
    rb"\b(?P<names>\w+(?:\s*,\s*\w+)*)\s*:=|\bvar\s+(?P<one>\w+)|[(,]\s*(?P<parameter>\w+)\s+[\w*\[\].]+"
)
IMPORT = re.compile(rb"(?P<alias>[\w.]+)?[ \t]*(?P<path>\"[^\"\n]+\"|`[^`\n]+`)")
CALL = re.compile(rb"\b(?!new\b|func\b)\w+\s*\(")
STAYING = frozenset({b"init", b"TestMain", b"_"})
REPORTS = re.compile(rb"ocDiffers\d+")
"""What `GoRewriter.support` adds; the imports that it needs stay with it."""
TESTING = re.compile(rb"\b(\w+)\s+\*?testing\.(?:T|TB|B|F)\b")
MAX_BACK, MAX_USES = 1000, 300
"""How far before a use of its `*testing.T` a call is looked for, and uses that are looked at in one declaration."""


def items(source: bytes, code: bytes) -> list[Item]:
    heads = list(at_depth_0(KEYWORD, code, 0, len(code)))
    starts = [_with_directives(source, head.start()) for head in heads]
    found: list[Item] = []
    for head, start, end in zip(heads, starts, [*starts[1:], len(code)][: len(heads)], strict=True):
        found.extend(replace(item, hands=handed(code[item.start : item.end])) for item in _item(code, head, start, end))
    return found


def _with_directives(source: bytes, start: int) -> int:
    """Lines such as `//go:embed` belong to what they stand above."""
    while start and source[start - 1 : start] == b"\n":
        line = source.rfind(b"\n", 0, start - 1) + 1
        if not source[line:start].lstrip().startswith(b"//go:"):
            break
        start = line
    return start


def _item(code: bytes, head: re.Match[bytes], start: int, end: int) -> Iterator[Item]:
    word, at = head["word"], head.start()
    if word in (b"package", b"import"):
        yield Item(start, end, stays=True, leads=False)
    elif word == b"func":
        yield _function(code, at, start, end)
    elif (group := GROUP.match(code, at)) is not None:
        yield from _group(code, group, start, end)
    else:
        declared = DECLARED.match(code, at)
        names = _names(declared["names"] if declared else None)
        runs = CALL.search(code, declared.end() if declared else at, end) is not None
        yield Item(start, end, names, stays=not names or bool(names & STAYING), runs=runs)


def _function(code: bytes, at: int, start: int, end: int) -> Item:
    declared = FUNCTION.match(code, at)
    if declared is None:
        return Item(start, end, stays=True)
    bound = frozenset(
        name
        for use in BOUND.finditer(code, declared.end(), end)
        for name in _names(use["names"] or use["one"] or use["parameter"])
    )
    name = frozenset({declared["name"]})
    if declared["receiver"] is not None:
        kinds = re.findall(rb"\w+", declared["receiver"].partition(b"[")[0])[-1:]
        return Item(start, end, methods=name, owners=frozenset(kinds), bound=bound)
    stays = bool(name & STAYING) or REPORTS.fullmatch(declared["name"]) is not None
    return Item(start, end, name, bound=bound, stays=stays)


def _group(code: bytes, group: re.Match[bytes], start: int, end: int) -> Iterator[Item]:
    """`var (…)` spec by spec; constants that count on each other (`iota`, values left out) stay together."""
    opening = group.start("open")
    closing = brackets(code[opening:end]).get(0)
    close = end if closing is None else opening + closing - 1
    specs = [
        spec
        for spec in at_depth_0(SPEC, code, opening + 1, close)
        if not code[opening + 1 : spec.start()].rstrip().endswith(GOES_ON)
    ]
    stops = [*(spec.start() for spec in specs[1:]), close][: len(specs)]
    counts = group["kind"] == b"const" and not all(
        b"=" in code[spec.start() : stop] for spec, stop in zip(specs, stops, strict=True)
    )
    if closing is None or counts or not specs or b"iota" in code[start:end]:
        every = frozenset(name for spec in specs for name in _names(spec["names"]))
        yield Item(start, end, every, stays=not every or bool(every & STAYING))
        return
    for spec, stop in zip(specs, stops, strict=True):
        names = _names(spec["names"])
        runs = CALL.search(code, spec.end(), stop) is not None
        yield Item(spec.start(), stop, names, stays=bool(names & STAYING), runs=runs)


def _names(text: bytes | None) -> frozenset[bytes]:
    return frozenset(name.strip() for name in (text or b"").split(b",") if name.strip())


def handed(code: bytes) -> frozenset[bytes]:
    """Functions that a declaration hands its `*testing.T` to; "" for one without a name."""
    found: set[bytes] = set()
    for name in set(TESTING.findall(code)):
        uses = re.finditer(rb"[(,]\s*" + re.escape(name) + rb"\s*(?=[,)])", code)
        found.update(callee for use in islice(uses, MAX_USES) if (callee := _callee(code, use.start())) is not None)
        if next(uses, None) is not None:
            found.add(b"")  # too many to look at
        if re.search(rb"\b" + re.escape(name) + rb"\.(?:Fatal|Error|Fail)\w*+(?!\s*\()", code):
            found.add(b"")
    return frozenset(found)


def _callee(code: bytes, at: int) -> bytes | None:
    """The name of the function whose arguments hold offset `at`; None for another kind of list."""
    depth = 0
    for place in range(at, max(-1, at - MAX_BACK), -1):
        mark = code[place : place + 1]
        if mark in (b")", b"]", b"}"):
            depth += 1
        elif mark in (b"(", b"[", b"{"):
            if depth == 0:
                word = re.search(rb"(\w*)\s*\Z", code[max(0, place - 80) : place])
                return (word[1] if word else b"") if mark == b"(" else None
            depth -= 1
    return b""


def mended(before: bytes, after: bytes) -> bytes:
    """`after` with `_` before each import that only removed declarations used: an unused one does not compile."""
    old, new = (mask(text, GoTests.syntax).code for text in (before, after))
    out, position = bytearray(), 0
    for item in items(after, new):
        if not new[item.start : item.end].lstrip(b" \t\n;").startswith((b"import", b"package")):
            continue
        for spec in IMPORT.finditer(after, item.start, item.end):
            start = spec.start("path") if spec["alias"] in (None, b"import") else spec.start()
            alias = None if spec["alias"] == b"import" else spec["alias"]
            names = package_names(spec["path"][1:-1]) if alias is None else {alias}
            if alias not in (b"_", b".") and _uses(old, names) and not _uses(new, names):
                out += after[position:start] + b"_ " + spec["path"]
                position = spec.end()
    return bytes(out + after[position:])


def _uses(code: bytes, names: set[bytes]) -> bool:
    return any(re.search(rb"(?<![\w.])" + re.escape(name) + rb"\s*\.", code) for name in names if name)


def package_names(path: bytes) -> set[bytes]:
    """What the package of an import path may be called."""
    parts = [part for part in path.split(b"/") if part]
    if len(parts) > 1 and re.fullmatch(rb"v\d+", parts[-1]):
        parts.pop()
    last = re.sub(rb"\.v\d+$", b"", parts[-1]) if parts else b""
    return {last, *re.split(rb"[-.]", last)}
