"""Probes of Go tests: conditions before a complaint report their operands, in every variant of the file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tree_sitter import Node

from sandbox.grading.dynamic_analysis.probes.trees import Edit, ancestors, edited, parse, text_of, walk
from sandbox.grading.dynamic_analysis.probes.variation import Made, Variant

COMPLAINS = re.compile(r"(Fatal|Error)f?|Fail(Now)?")
COMPARES, ORDERS = frozenset({"==", "!="}), frozenset({"<", ">", "<=", ">="})
EQUALS = re.compile(r"(reflect\.DeepEqual|(slices|maps|bytes|strings)\.Equal(Fold)?)")
FUNCTIONS = frozenset({"function_declaration", "method_declaration"})
UNCHANGED = frozenset({"import_declaration", "package_clause", "array_type", "field_declaration"})
"""Nodes in which a literal is no example."""
ENVIRONMENT = "GOFLAGS=-mod=mod GOPROXY=off GOSUMDB=off GOTOOLCHAIN=local CGO_ENABLED=0"
SUPPORT = """
func ocSayTAG(site int, row func() []any, left func() any, right func() any) bool {
	text := func(ask func() any) (said string) {
		defer func() {
			if recover() != nil {
				said = "!panic"
			}
		}()
		value := ask()
		if failure, fails := value.(error); fails {
			return "error " + failure.Error()
		}
		return ocfmtTAG.Sprintf("%#v", value)
	}
	cut := func(said string) string {
		if len(said) > 300 {
			said = said[:300]
		}
		return said
	}
	one, two := text(left), text(right)
	ocfmtTAG.Printf("\\n\\x02oc FILE VARIANT %d %x 0 %x %x\\n", site, cut(ocfmtTAG.Sprintf("%+v", row())), cut(one), cut(two))
	return false
}
"""


def is_test(path: str) -> bool:
    return path.endswith("_test.go")


def probes(tests: Mapping[str, str], variants: int) -> Made:
    made = Made()
    for number, (path, text) in enumerate(tests.items()):
        source = text.encode()
        root = parse("go", source)
        if root is None:
            continue
        pool = [text_of(n)[1:-1] for n in walk(root) if n.type == "interpreted_string_literal"]
        for variant in range(variants):
            tag = f"_{number}_{variant}"
            changed = edited(source, [*_others(root, Variant(variant, pool)), *_renamed(root, tag)])
            again = parse("go", changed)
            if again is None:
                break
            owners: list[str] = []
            rewritten = edited(changed, [*_reports(again, tag, owners), *_imports(again, tag)]).decode()
            made.owners |= {(number, site): name.removesuffix(tag) for site, name in enumerate(owners, start=1)}
            support = SUPPORT.replace("FILE VARIANT", f"{number} {variant}").replace("TAG", tag)
            made.files[str(PurePosixPath(path).with_name(f"0oc{tag}_test.go"))] = rewritten + support
    return made


def command(files: Sequence[str], python: str) -> str:
    folders = sorted({str(PurePosixPath(path).parent) for path in files})
    named = " ".join(shlex.quote(f"./{folder}" if folder != "." else ".") for folder in folders)
    return f"export {ENVIRONMENT}; exec go test -v -count=1 -vet=off -p=1 {named} >&$RESULT_FD 2>/dev/null"


def passed(output: str) -> frozenset[str]:
    ends = re.findall(r"^--- (PASS|FAIL|SKIP): (\w+) \(", output, re.M)
    return frozenset(name for end, name in ends if end == "PASS") - {name for end, name in ends if end != "PASS"}


def _names(root: Node) -> set[str]:
    """What the file declares for its package: each variant has names of its own."""
    found: set[str] = set()
    for declaration in root.children:
        if declaration.type == "function_declaration":
            specs = [declaration]
        elif declaration.type in ("var_declaration", "const_declaration", "type_declaration"):
            specs = [n for n in walk(declaration) if n.type in ("var_spec", "const_spec", "type_spec", "type_alias")]
        else:
            continue
        for spec in specs:
            found |= {text_of(name) for name in spec.children_by_field_name("name")}
    return found - {"_", "init", ""}


def _renamed(root: Node, tag: str) -> Iterator[Edit]:
    names = _names(root)
    for node in walk(root):
        if node.type in ("identifier", "type_identifier") and text_of(node) in names:
            yield Edit(node.end_byte, node.end_byte, tag)


def _others(root: Node, variant: Variant) -> Iterator[Edit]:
    for node in walk(root) if variant.number else ():
        kind = node.type
        if not kind.endswith("_literal") or kind in ("composite_literal", "func_literal"):
            continue
        if any(above.type in UNCHANGED for above in ancestors(node)) or _is_spoken(node):
            continue
        text = text_of(node)
        made = text
        if kind == "interpreted_string_literal" and "%" not in text and "\\" not in text:
            made = f'"{variant.text(text[1:-1])}"'
        elif kind == "raw_string_literal":
            made = f"`{variant.text(text[1:-1])}`"
        elif kind == "int_literal" and re.fullmatch(r"[1-9]\d*", text):
            made = str(variant.integer(int(text), 127 if int(text) <= 127 else 255 if int(text) <= 255 else None))
        elif kind == "float_literal" and re.fullmatch(r"\d+\.\d+", text):
            made = str(abs(variant.real(float(text))))
        if made != text:
            yield Edit(node.start_byte, node.end_byte, made)


def _is_spoken(node: Node) -> bool:
    """An argument of a method of the test itself: a complaint, the name of a part."""
    for above in ancestors(node):
        if above.type == "call_expression" and (called := above.child_by_field_name("function")) is not None:
            if re.fullmatch(rf"\w+\.({COMPLAINS.pattern}|Logf?|Run|Skipf?|Setenv)", text_of(called)):
                return True
        elif above.type == "func_literal" or above.type in FUNCTIONS:
            return False
    return False


def _imports(root: Node, tag: str) -> Iterator[Edit]:
    package = next((n for n in root.children if n.type == "package_clause"), None)
    if package is not None:
        yield Edit(package.end_byte, package.end_byte, f'; import ocfmt{tag} "fmt"')


def _reports(root: Node, tag: str, owners: list[str]) -> Iterator[Edit]:
    """Edits that make conditions report; the functions that these stand in are added to `owners`."""
    for node in walk(root):
        if node.type != "if_statement":
            continue
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
        if condition is None or body is None or not _complains(body):
            continue
        rows = ", ".join(dict.fromkeys(_row(node)))
        said = []
        for left, right in _sides(condition):
            owners.append(_function(node))
            asked = ", ".join(f"func() any {{ return {side} }}" for side in (left, right or '""'))
            said.append(f"ocSay{tag}({len(owners)}, func() []any {{ return []any{{{rows}}} }}, {asked})")
        whole = text_of(condition)
        yield Edit(condition.start_byte, condition.end_byte, f"({' || '.join(said)}) && ({whole})")


def _function(node: Node) -> str:
    for above in ancestors(node):
        if above.type in FUNCTIONS:
            name = above.child_by_field_name("name")
            return text_of(name) if name is not None else ""
    return ""


def _complains(body: Node) -> bool:
    for statement in (n for n in walk(body) if n.type == "call_expression"):
        called = statement.child_by_field_name("function")
        if called is not None and called.type == "selector_expression":
            method = called.child_by_field_name("field")
            if method is not None and COMPLAINS.fullmatch(text_of(method)):
                return True
    return False


def _sides(condition: Node) -> Iterator[tuple[str, str]]:
    """What each part of a condition compares; a part that compares nothing stands for itself."""
    if condition.type == "parenthesized_expression" and condition.named_child_count == 1:
        yield from _sides(condition.named_children[0])
        return
    if condition.type == "binary_expression":
        left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
        operator = condition.child_by_field_name("operator")
        if left is None or right is None or operator is None:
            return
        if text_of(operator) in ("&&", "||"):
            yield from _sides(left)
            yield from _sides(right)
            return
        if "nil" not in (text_of(left), text_of(right)) and text_of(operator) in COMPARES | ORDERS:
            if text_of(operator) in COMPARES:
                yield text_of(left), text_of(right)
            else:
                yield from ((text_of(side), "") for side in (left, right))
            return
    inner = condition.named_children[0] if condition.type == "unary_expression" and condition.named_children else None
    if inner is not None and inner.type == "call_expression":
        called, given = inner.child_by_field_name("function"), inner.child_by_field_name("arguments")
        if (
            called is not None
            and given is not None
            and EQUALS.fullmatch(text_of(called))
            and given.named_child_count == 2
        ):
            yield text_of(given.named_children[0]), text_of(given.named_children[1])
            return
    yield text_of(condition), ""


def _row(node: Node) -> Iterator[str]:
    """What the loops around a condition run over: rows of a map come in any order."""
    for above in ancestors(node):
        if above.type in FUNCTIONS:
            return
        for clause in above.children if above.type == "for_statement" else ():
            left = clause.child_by_field_name("left") if clause.type == "range_clause" else None
            for name in left.named_children if left is not None else ():
                if name.type == "identifier" and text_of(name) != "_":
                    yield text_of(name)
