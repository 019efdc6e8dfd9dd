"""Probes of `node --test` files: calls of `assert` report what they are given, in every variant of the file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tree_sitter import Node

from sandbox.grading.dynamic_analysis.probes.trees import Edit, ancestors, edited, parse, text_of, walk
from sandbox.grading.dynamic_analysis.probes.variation import Made, Variant

PROBE = "oc "
"""Before the titles of probes."""
TESTS = re.compile(r"(test|it|describe|suite|t\.test)(\.\w+)?")
SIDES = re.compile(r"assert\.(equal|strictEqual|deepEqual|deepStrictEqual)")
HOLDS = re.compile(r"assert(\.(ok|match|doesNotMatch))?")
THROWS = re.compile(r"assert\.(throws|doesNotThrow|rejects|doesNotReject)")
NAMES = re.compile(r"(require|import|setTimeout|mock\.\w+|t\.mock\.\w+|process\.\w+)")
"""Calls whose arguments are no examples."""
SUPPORT = r"""
function ocWrite(site, row, same, left, right) {
  const hex = (text) => Buffer.from(String(text)).subarray(0, 300).toString('hex');
  process.stdout.write(`\n\x02oc FILE VARIANT ${site} ${hex(row)} ${same} ${hex(left)} ${hex(right)}\n`);
}
function ocText(value) {
  return process.getBuiltinModule
    ? process.getBuiltinModule('node:util').inspect(value, { depth: 6, breakLength: Infinity })
    : typeof value + ' ' + JSON.stringify(value);
}
function ocRow(row) {
  try { return ocText(row()); } catch { return ''; }
}
function ocSame(one, two) {
  if (Object.is(one, two) || ocText(one) === ocText(two)) return 2;
  const loosely = one == two || String(one) === String(two);
  return !loosely ? 0 : typeof one === 'object' || typeof two === 'object' ? 1 : 2;
}
function ocSay(site, row, left, right) {
  let one, two;
  try { one = left(); two = right ? right() : ''; } catch { return ocWrite(site, ocRow(row), 0, '!raised', ''); }
  ocWrite(site, ocRow(row), right ? ocSame(one, two) : 0, ocText(one), right ? ocText(two) : '');
}
async function ocSayLater(site, row, left, right) {
  let one, two;
  try { one = await left(); two = right ? await right() : ''; } catch { return ocWrite(site, ocRow(row), 0, '!raised', ''); }
  ocWrite(site, ocRow(row), right ? ocSame(one, two) : 0, ocText(one), right ? ocText(two) : '');
}
function ocThrows(site, row, call) {
  try { call()(); } catch { return ocWrite(site, ocRow(row), 0, '!raised', ''); }
  ocWrite(site, ocRow(row), 0, 'nothing', '');
}
async function ocRejects(site, row, call) {
  try { const made = call(); await (typeof made === 'function' ? made() : made); } catch {
    return ocWrite(site, ocRow(row), 0, '!raised', '');
  }
  ocWrite(site, ocRow(row), 0, 'nothing', '');
}
"""


def is_test(path: str) -> bool:
    return re.search(r"(\.test|\.spec|_test)\.[cm]?js$|(^|/)(tests?|__tests__)/[^/]+\.[cm]?js$", path) is not None


def probes(tests: Mapping[str, str], variants: int) -> Made:
    made = Made()
    for number, (path, text) in enumerate(tests.items()):
        root = parse("javascript", text.encode())
        if root is None or not re.search(r"node:test|node:assert|require\(['\"]assert", text):
            continue
        pool = [text_of(n) for n in walk(root) if n.type == "string_fragment"]
        for variant in range(variants):
            changed = edited(text.encode(), _others(root, Variant(variant, pool)))
            again = parse("javascript", changed)
            if again is None:
                break
            owners: list[str] = []
            rewritten = edited(changed, [*_reports(again, owners), *_titles(again)]).decode()
            made.owners |= {(number, site): name for site, name in enumerate(owners, start=1)}
            pure = PurePosixPath(path)
            ending = pure.name.partition(".")[2] or "js"
            support = SUPPORT.replace("FILE VARIANT", f"{number} {variant}")
            made.files[str(pure.with_name(f"oc_{number}_{variant}.{ending}"))] = rewritten + support
    return made


def command(files: Sequence[str], python: str) -> str:
    """Every file is a program of its own, which a product may end: the others run all the same."""
    runs = "; ".join(f"node {shlex.quote(path)}" for path in files)
    return f"{{ {runs}; }} >&$RESULT_FD 2>/dev/null"


def passed(output: str) -> frozenset[str]:
    good = re.findall(r"^[^\S\n]*+(?:ok \d+ - |✔ )(.+?)(?: \([\d.]+ms\))?(?: # .*)?$", output, re.M)
    bad = re.findall(r"^[^\S\n]*+(?:not ok \d+ - |✖ )(.+?)(?: \([\d.]+ms\))?(?: # .*)?$", output, re.M)
    return frozenset(name for name in good if not name.startswith(PROBE)) - set(bad)


def _called(node: Node) -> str:
    function = node.child_by_field_name("function")
    return text_of(function) if function is not None else ""


def _arguments(call: Node) -> list[Node]:
    given = call.child_by_field_name("arguments")
    return [n for n in given.named_children if n.type != "comment"] if given is not None else []


def _others(root: Node, variant: Variant) -> Iterator[Edit]:
    for node in walk(root) if variant.number else ():
        if node.type not in ("string_fragment", "number") or _is_name(node):
            continue
        text = text_of(node)
        made = text
        if node.type == "string_fragment" and node.parent is not None and node.parent.type == "string":
            whole = node.parent.named_child_count == 1
            made = variant.text(text) if whole else text
        elif re.fullmatch(r"[1-9]\d*", text):
            made = str(variant.integer(int(text)))
        elif re.fullmatch(r"\d+\.\d+", text):
            made = repr(abs(variant.real(float(text))))
        if made != text and not re.search(r"['\"`\\]", made):
            yield Edit(node.start_byte, node.end_byte, made)


def _is_name(node: Node) -> bool:
    below = node
    for above in ancestors(node):
        if above.type in ("import_statement", "subscript_expression", "template_string", "regex"):
            return True
        if above.type == "pair" and above.child_by_field_name("key") == below:
            return True
        if above.type == "call_expression":
            given, name = _arguments(above), _called(above)
            if NAMES.fullmatch(name) or (TESTS.fullmatch(name) and given[:1] and given[0] == _within(given, node)):
                return True
            if SIDES.fullmatch(name) and _within(given, node) in given[2:]:
                return True
        below = above
    return False


def _within(given: Sequence[Node], node: Node) -> Node | None:
    """The argument in which the node stands."""
    return next((item for item in given if item.start_byte <= node.start_byte < item.end_byte), None)


def _titles(root: Node) -> Iterator[Edit]:
    for node in walk(root):
        given = _arguments(node) if node.type == "call_expression" and TESTS.fullmatch(_called(node)) else []
        if given and given[0].type in ("string", "template_string"):
            yield Edit(given[0].start_byte + 1, given[0].start_byte + 1, PROBE)


def _reports(root: Node, owners: list[str]) -> Iterator[Edit]:
    """Edits that make assertions report; titles of the tests that these stand in are added to `owners`."""
    for node in walk(root):
        if node.type != "call_expression":
            continue
        name, given = _called(node), [text_of(item) for item in _arguments(node)]
        row = f"() => [{', '.join(dict.fromkeys(_row(node)))}]"
        whole = text_of(node)
        if THROWS.fullmatch(name) and given:
            owners.append(_title(node))
            later = "eject" in name
            said = f"{'ocRejects' if later else 'ocThrows'}({len(owners)}, {row}, () => ({given[0]}))"
        elif (SIDES.fullmatch(name) and len(given) > 1) or (HOLDS.fullmatch(name) and given):
            owners.append(_title(node))
            sides = given[:2] if SIDES.fullmatch(name) else [given[0] if "atch" in name else f"!!({given[0]})"]
            later = any(re.search(r"\bawait\b", side) for side in sides)
            form = "async () => " if later else "() => "
            asked = ", ".join(f"{form}({side})" for side in sides)
            said = f"{'await ocSayLater' if later else 'ocSay'}({len(owners)}, {row}, {asked})"
        else:
            continue
        if whole:
            yield Edit(node.start_byte, node.end_byte, said)


def _title(node: Node) -> str:
    for above in ancestors(node):
        given = _arguments(above) if above.type == "call_expression" and TESTS.fullmatch(_called(above)) else []
        if given and given[0].type == "string":
            return text_of(given[0])[1:-1]
    return ""


def _row(node: Node) -> Iterator[str]:
    for above in ancestors(node):
        left = above.child_by_field_name("left") if above.type == "for_in_statement" else None
        for name in walk(left) if left is not None else ():
            if name.type in ("identifier", "shorthand_property_identifier_pattern"):
                yield text_of(name)
