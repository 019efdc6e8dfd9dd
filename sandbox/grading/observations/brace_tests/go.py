"""Assertions of Go tests: `if got := f(x); got != literal { t.Fatal… }`, `reflect.DeepEqual`, and testify's `Equal`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from sandbox.grading.canaries.base import Block
from sandbox.grading.canaries.go import GoTests
from sandbox.grading.canaries.scanning import arguments_after, brackets
from sandbox.grading.observations.brace_tests.braces import FIRST, SITE, Assertion, Edit
from sandbox.grading.observations.brace_tests.go_items import items, mended
from sandbox.grading.observations.brace_tests.items import Item

IF = re.compile(rb"\bif\b(?P<head>[^\n]{0,2000}?)(?P<brace>\{)[ \t]*(?=\n)")
FAILS = re.compile(rb"\s*(?P<t>\w+)\.(?:Fatal|Error|Fail|Log)\w*\(")
EQUAL = re.compile(rb"\b(?:assert|require)\.Equal(\()")
DEEP = re.compile(rb"\s*!\s*reflect\.DeepEqual(\()")
WANT = re.compile(rb"(?:\w+\.)?(?P<name>(?:want|expect|expected|exp|out|output|result)\w*)")
LITERAL = re.compile(
    rb"\s*(?:[+-]?[\d.][\w.]*|'[^'\n]*'|\"[^\"\n]*\"|`[^`]*`|true|false|(?:[\[\]\w.*{} ]*?\{.*\}))\s*", re.DOTALL
)
"""A literal of Go, strings blanked out. Composite ones may only hold literals (`is_literal`)."""
CALLS = re.compile(rb"\w\s*\(|\bfunc\b")
PACKAGE = re.compile(rb"^package[ \t]+\w+[ \t]*(?=;|\n|//)", re.MULTILINE)
WATCHED = re.compile(rb"[\s(!]*(?:(?P<report>ocDiffers\d+)\(|(?:\w+\.)?[eE]rr\w*\s*[!=]=\s*nil[\s)]*\Z)")
"""What an `if` with a complaint depends on where it tells no expectation: a report, or whether there is an error."""
COMPLAINS = re.compile(rb"\.(?:Fatal|Error|Fail)(?:f|ln|Now)?\(")
STOPS = re.compile(rb"\s*(?:\bpanic|\bos\.Exit|\blog\.Panic\w*|\bruntime\.Goexit)\(")
SAYS = re.compile(rb"\.(?:Fatal|Error|Log|Skip)f?\(")
ASSERTS = re.compile(rb"\b(?:assert|require|cmp|is|qt|check)\.\w+\(")
WANTED_ERROR = re.compile(rb"\(?\s*(?P<got>\w*[eE]rr\w*\s*!=\s*nil)\s*\)?\s*!=\s*(?P<want>[\w.]+)")
"""`(err != nil) != c.wantErr`."""
SPOKEN = re.compile(rb"\"[^\"\n]*\"|`[^`]*`|'[^'\n]*'|(?<![\w.)\]])(?:\d[\w.]*|\.\d\w*)")
"""Literals in a complaint, strings blanked out."""
SUPPORT = """
func ocDiffersFIRST(t interface{ Helper(); Logf(string, ...interface{}) }, site int, values ...interface{}) bool {
	t.Helper()
	USED
	var tell func(ocreflect.Value, bool) string
	tell = func(v ocreflect.Value, whole bool) string {
		if !v.IsValid() {
			return "<nil>"
		}
		if v.CanInterface() {
			if _, speaks := v.Interface().(ocfmt.GoStringer); speaks {
				return ocfmt.Sprintf("%#v", v.Interface())
			}
		}
		kind, parts := v.Type().String(), []string{}
		switch v.Kind() {
		case ocreflect.Float32, ocreflect.Float64:
			if v.Float() == 0 {
				return "0"
			}
		case ocreflect.Ptr:
			if whole && !v.IsNil() {
				switch v.Elem().Kind() {
				case ocreflect.Array, ocreflect.Slice, ocreflect.Struct, ocreflect.Map:
					return "&" + tell(v.Elem(), false)
				}
			}
		case ocreflect.Interface:
			if !v.IsNil() {
				return tell(v.Elem(), false)
			}
		case ocreflect.Struct:
			for i := 0; i < v.NumField(); i++ {
				field := v.Field(i)
				isFloat := field.Kind() == ocreflect.Float32 || field.Kind() == ocreflect.Float64
				if !field.IsZero() && !(isFloat && field.Float() == 0) {
					parts = append(parts, v.Type().Field(i).Name+":"+tell(field, false))
				}
			}
			return kind + "{" + ocstrings.Join(parts, ", ") + "}"
		case ocreflect.Map:
			if !v.IsNil() {
				for _, key := range v.MapKeys() {
					parts = append(parts, tell(key, false)+":"+tell(v.MapIndex(key), false))
				}
				ocsort.Strings(parts)
				return kind + "{" + ocstrings.Join(parts, ", ") + "}"
			}
		case ocreflect.Slice, ocreflect.Array:
			if v.Kind() == ocreflect.Array || !v.IsNil() {
				for i := 0; i < v.Len(); i++ {
					parts = append(parts, tell(v.Index(i), false))
				}
				return kind + "{" + ocstrings.Join(parts, ", ") + "}"
			}
		}
		return ocfmt.Sprintf("%#v", v)
	}
	line := ""
	for _, value := range values {
		text := ""
		switch v := ocreflect.ValueOf(value); v.Kind() {
		case ocreflect.Int, ocreflect.Int8, ocreflect.Int16, ocreflect.Int32, ocreflect.Int64:
			text = ocfmt.Sprint(v.Int())
		case ocreflect.Uint, ocreflect.Uint8, ocreflect.Uint16, ocreflect.Uint32, ocreflect.Uint64, ocreflect.Uintptr:
			text = ocfmt.Sprint(v.Uint())
		case ocreflect.Float32, ocreflect.Float64:
			if text = ocfmt.Sprint(v.Float()); v.Float() == 0 {
				text = "0"
			}
		case ocreflect.String:
			text = v.String()
		case ocreflect.Bool:
			text = ocfmt.Sprint(v.Bool())
		default:
			text = tell(v, true)
		}
		if len(text) > 600 {
			hash := uint64(14695981039346656037)
			for i := 0; i < len(text); i++ {
				hash = (hash ^ uint64(text[i])) * 1099511628211
			}
			text = ocfmt.Sprint(text[:400], "...", len(text), " ", hash)
		}
		line += ocfmt.Sprintf(" %x.", text)
	}
	t.Logf("\\x02observed %d%s", site, line)
	return false
}
"""
"""Values are told as `%#v` does, but for what `==` and `reflect.DeepEqual` do not see: the sign of a zero, and fields that are
zero, which right work may have added."""
USED = re.compile(rb"^[ \t]*(?:import[ \t]+)?\"(?:[\w./-]+/)?(?P<name>reflect|assert|require)\"", re.MULTILINE)
"""Imports that a file may need for nothing but what is rewritten; an unused one does not compile."""
USES = {b"reflect": "reflect.DeepEqual", b"assert": "assert.Equal", b"require": "require.Equal"}


class GoRewriter:
    language = GoTests()
    syntax = GoTests.syntax
    readable = False
    apart = False

    def assertions(self, source: bytes, code: bytes, block: Block) -> Iterator[Assertion]:
        fields = rows(code[block.start : block.end], block.start)
        found = [*self._conditions(source, code, block, fields), *self._testify(source, code, block, fields)]
        yield from sorted(found, key=lambda assertion: assertion.start)

    def decides(self, code: bytes) -> bool:
        """Whether code still decides something by what it computes, strings and comments blanked out."""
        watched = sum(
            (FAILS.match(code, match.end()) or STOPS.match(code, match.end())) is not None
            and _tells_nothing(match["head"])
            for match in IF.finditer(code)
        )
        ends = len(COMPLAINS.findall(code)) + len(STOPS.findall(code))
        return ends > watched or ASSERTS.search(code) is not None

    def items(self, path: str, source: bytes, code: bytes) -> list[Item]:
        return [replace(item, decides=self._item_decides(item, code)) for item in items(source, code)]

    def _item_decides(self, item: Item, code: bytes) -> bool:
        text = code[item.start : item.end]
        if text.lstrip().startswith(b"func ocDiffers"):
            return False
        return self.decides(
            text.replace(b"os.Exit(", b"") if b"TestMain" in item.names else text
        )  # the result's way out

    def may_show(self, path: str, item: Item) -> bool:
        return True

    def scope(self, path: str) -> str | None:
        return str(PurePosixPath(path).parent) if path.endswith("_test.go") else None

    def mended(self, before: bytes, after: bytes, gone: Collection[bytes]) -> bytes:
        return mended(before, after)

    def said(self, code: bytes, start: int, end: int) -> list[Edit]:
        closed, support = brackets(code), code.find(b"\nfunc ocDiffers")
        end = end if support < 0 else min(end, support)
        calls = [(call.end(), closed.get(call.end() - 1, call.end())) for call in SAYS.finditer(code, start, end)]
        return [edit for begin, stop in calls for edit in _spoken(code, begin, stop)]

    def keeps_remark(self, remark: bytes) -> bool:
        return remark.startswith((b"//go:", b"// +build", b"//+build"))

    def emptied(self, block: bytes) -> bytes:
        return b""

    def support(self, source: bytes, code: bytes, first: int) -> list[Edit]:
        package = PACKAGE.search(code)
        at = package.end() if package else 0
        imports = "".join(f'; import oc{name} "{name}"' for name in ("fmt", "reflect", "sort", "strings"))
        used = "".join(f"_ = {USES[name]}; " for name in sorted({one["name"] for one in USED.finditer(source)}))
        support = SUPPORT.replace("FIRST", str(first)).replace("\tUSED\n", f"\t{used}\n" if used else "")
        return [Edit(at, at, imports), Edit(len(source), len(source), support)]

    def _conditions(
        self, source: bytes, code: bytes, block: Block, fields: dict[bytes, tuple[Edit, ...]]
    ) -> Iterator[Assertion]:
        for match in IF.finditer(code, block.start, block.end):
            body = FAILS.match(code, match.end())
            start, end = match.span("head")
            if body is None or b"&&" in code[start:end]:
                continue
            begin = code.rfind(b";", start, end) + 1 or start
            if code.count(b";", start, end) > 1:
                continue
            closing = brackets(code[match.start("brace") : block.end]).get(0)
            spoken = _spoken(code, match.end(), match.start("brace") + closing) if closing is not None else ()
            for part in _split(code, begin, end):
                made = self._comparison(source, code, part, body["t"], fields)
                if made is not None:
                    yield replace(made, blanks=(*made.blanks, *spoken))

    def _comparison(
        self, source: bytes, code: bytes, part: tuple[int, int], t: bytes, fields: dict[bytes, tuple[Edit, ...]]
    ) -> Assertion | None:
        deep = DEEP.match(code, *part)
        if deep is not None:
            arguments = arguments_after(code, deep.end() - 1)
            closing = brackets(code[deep.end() - 1 : part[1]]).get(0)
            if len(arguments) != 2 or closing is None or code[deep.end() - 1 + closing : part[1]].strip():
                return None
            sides = arguments
        else:
            text = code[slice(*part)]
            error = WANTED_ERROR.fullmatch(text.strip())
            if error is not None:
                offset = part[0] + len(text) - len(text.lstrip())
                sides = [(offset + error.start(side), offset + error.end(side)) for side in ("got", "want")]
                return self._made(source, code, _trimmed(code, part), sides, t, fields)
            if text.count(b"!=") != 1 or re.search(rb"[<>]|==|\bnil\b", text):
                return None
            at = part[0] + text.index(b"!=")
            sides = [(part[0], at), (at + 2, part[1])]
        return self._made(source, code, _trimmed(code, part), sides, t, fields)

    def _testify(
        self, source: bytes, code: bytes, block: Block, fields: dict[bytes, tuple[Edit, ...]]
    ) -> Iterator[Assertion]:
        for call in EQUAL.finditer(code, block.start, block.end):
            arguments = arguments_after(code, call.start(1))
            closing = brackets(code[call.start(1) : block.end]).get(0)
            if len(arguments) >= 3 and closing is not None:
                t = code[slice(*arguments[0])].strip()
                span = (call.start(), call.start(1) + closing)
                made = self._made(source, code, span, [arguments[2], arguments[1]], t, fields)
                if made is not None and re.fullmatch(rb"\w+", t):
                    yield made

    def _made(
        self,
        source: bytes,
        code: bytes,
        span: tuple[int, int],
        sides: list[tuple[int, int]],
        t: bytes,
        fields: dict[bytes, tuple[Edit, ...]],
    ) -> Assertion | None:
        got, want = sides
        if _demands(code, got, fields) and not _demands(code, want, fields):
            got, want = want, got
        if not _demands(code, want, fields) or is_literal(code[slice(*got)]):
            return None
        blanks: tuple[Edit, ...] = ()
        shared = ""
        if not is_literal(code[slice(*want)]):
            name = WANT.fullmatch(code[slice(*want)].strip())
            assert name is not None
            shared, blanks = name["name"].decode(), fields[name["name"]]
        value, demanded = (source[slice(*side)].decode("utf-8", "replace").strip() for side in (got, want))
        call = f"ocDiffers{FIRST}({t.decode()}, {SITE}, {value}"
        return Assertion(*span, f"{call}, {demanded})", f"{call})", demanded, blanks=blanks, shared=shared)


def _tells_nothing(head: bytes) -> bool:
    """Whether every operand of a condition is a report, or asks whether there is an error."""
    operands = re.split(rb"\|\||&&", _closed(head.rpartition(b";")[2]))
    return all(WATCHED.match(operand) is not None for operand in operands)


def _closed(condition: bytes) -> bytes:
    """A condition without the arguments of its reports."""
    closed = brackets(condition)
    out, position = bytearray(), 0
    for report in re.finditer(rb"\bocDiffers\d+(\()", condition):
        end = closed.get(report.start(1))
        if end is not None and report.start() >= position:
            out += condition[position : report.end()] + b")"
            position = end
    return bytes(out + condition[position:])


def _spoken(code: bytes, start: int, end: int) -> tuple[Edit, ...]:
    """What blanks the literals of a complaint, which may name the wanted value: it is never made.

    Numbers become 1, with which one may also divide.
    """
    return tuple(
        Edit(*literal.span(), '""' if literal[0][:1] in b'"`' else "'a'" if literal[0][:1] == b"'" else "1")
        for literal in SPOKEN.finditer(code, start, end)
    )


def _demands(code: bytes, span: tuple[int, int], fields: dict[bytes, tuple[Edit, ...]]) -> bool:
    text = code[slice(*span)]
    name = WANT.fullmatch(text.strip())
    return is_literal(text) or (name is not None and bool(fields.get(name["name"])))


def is_literal(code: bytes) -> bool:
    return LITERAL.fullmatch(code) is not None and CALLS.search(code) is None


def _split(code: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The operands of `||`."""
    begin = start
    for mark in re.finditer(rb"\|\|", code[start:end]):
        yield begin, start + mark.start()
        begin = start + mark.end()
    yield begin, end


def _trimmed(code: bytes, span: tuple[int, int]) -> tuple[int, int]:
    text = code[slice(*span)]
    return span[0] + len(text) - len(text.lstrip()), span[1] - (len(text) - len(text.rstrip()))


def rows(block: bytes, offset: int) -> dict[bytes, tuple[Edit, ...]]:
    """Name of a wanted value → what blanks its literals: fields of table rows, keyed or not, and variables."""
    found: dict[bytes, list[Edit] | None] = {}

    def add(name: bytes, span: tuple[int, int]) -> None:
        text = block[slice(*span)]
        start, end = _trimmed(block, span)
        known = found.setdefault(name, [])
        if not is_literal(text):
            found[name] = None
        elif known is not None:
            known.append(Edit(offset + start, offset + end, blank_of(block[start:end])))

    for field in re.finditer(rb"(?<![\w.])(?P<name>\w+):(?!=)", block):
        if WANT.fullmatch(field["name"]):
            add(field["name"], value_after(block, field.end()))
    for variable in re.finditer(rb"(?<![\w.])(?P<name>\w+)\s*:=", block):
        if WANT.fullmatch(variable["name"]):
            add(variable["name"], value_after(block, variable.end()))
    closed = brackets(block)
    for struct in re.finditer(rb"\bstruct\s*(\{)", block):
        end = closed.get(struct.start(1))
        if end is None:
            continue
        names = [
            name.strip()
            for line in re.split(rb"[;\n]", block[struct.end() : end - 1])
            for name in (re.match(rb"\s*((?:\w+\s*,\s*)*\w+)\s+\S", line) or [b"", b""])[1].split(b",")
            if name.strip()
        ]
        wanted = [(i, name) for i, name in enumerate(names) if WANT.fullmatch(name)]
        table = re.compile(rb"\s*(\{)").match(block, end)
        for row in arguments_after(block, table.start(1)) if table and wanted else ():
            start, _ = _trimmed(block, row)
            cells = arguments_after(block, start) if block[start : start + 1] == b"{" else []
            cells = [cell for cell in cells if block[slice(*cell)].strip()]
            if len(cells) == len(names) and not any(re.match(rb"\s*\w+\s*:", block[slice(*cell)]) for cell in cells):
                for index, name in wanted:
                    add(name, cells[index])
    return {name: tuple(edits) for name, edits in found.items() if edits}


def value_after(code: bytes, at: int) -> tuple[int, int]:
    depth = 0
    for mark in re.finditer(rb"[(){}\[\],;\n]", code[at : at + 4000]):
        if mark[0] in b"([{":
            depth += 1
        elif mark[0] in b")]}":
            if depth == 0:
                return at, at + mark.start()
            depth -= 1
        elif depth == 0:
            return at, at + mark.start()
    return at, at


def blank_of(literal: bytes) -> str:
    """A value of the same type that says nothing."""
    text = literal.strip()
    if text in (b"true", b"false"):
        return "false"
    if text[:1] in (b'"', b"`"):
        return '""'
    if text[:1] == b"'" or text[:1].isdigit() or text[:1] in (b"+", b"-", b"."):
        return "0"
    return "nil" if text.startswith((b"[]", b"map[", b"&")) else f"{text.split(b'{')[0].decode().strip()}{{}}"
