"""Probes of Rust's integration tests: assertion macros become ones that report; a variant is a module of one test program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tree_sitter import Node

from sandbox.grading.dynamic_analysis.probes.trees import Edit, ancestors, edited, parse, text_of, walk
from sandbox.grading.dynamic_analysis.probes.variation import Made, Variant

PROGRAM = "tests/oc_probe.rs"
ASSERTION = re.compile(r"(?:(?:std|core)::)?(assert|assert_eq|assert_ne)")
NO_MODULE = re.compile(r"\bcrate::|^\s*(?:pub )?mod \w+;|\bextern crate\b|\bmacro_rules!", re.M)
"""What a file may say that it cannot as a module."""
UNCHANGED = frozenset({"attribute_item", "inner_attribute_item", "use_declaration", "array_type", "range_expression"})
SIGNED = {"u8": 255, "i8": 127}
ENVIRONMENT = "CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never RUST_BACKTRACE=0"
SUPPORT = r"""
#[allow(unused)]
mod oc {
    fn hex(text: &str) -> String {
        text.bytes().take(300).map(|byte| format!("{:02x}", byte)).collect()
    }
    pub fn say(file: u32, variant: u32, site: u32, same: bool, left: &str, right: &str) {
        println!("\n\u{2}oc {} {} {}  {} {} {}", file, variant, site, same as u8, hex(left), hex(right));
    }
}
#[allow(unused)]
macro_rules! oc_sides {
    ($file:expr, $variant:expr, $site:expr, $left:expr, $right:expr) => {
        match ::std::panic::catch_unwind(::std::panic::AssertUnwindSafe(|| match (&$left, &$right) {
            (left, right) => (*left == *right, ::std::format!("{:?}", left), ::std::format!("{:?}", right)),
        })) {
            Ok((same, left, right)) => crate::oc::say($file, $variant, $site, same, &left, &right),
            Err(_) => crate::oc::say($file, $variant, $site, false, "!panic", ""),
        }
    };
}
#[allow(unused)]
macro_rules! oc_holds {
    ($file:expr, $variant:expr, $site:expr, $held:expr) => {
        match ::std::panic::catch_unwind(::std::panic::AssertUnwindSafe(|| $held)) {
            Ok(held) => crate::oc::say($file, $variant, $site, false, if held { "true" } else { "false" }, ""),
            Err(_) => crate::oc::say($file, $variant, $site, false, "!panic", ""),
        }
    };
}
"""


def is_test(path: str) -> bool:
    return re.fullmatch(r"tests/\w+\.rs", path) is not None


def probes(tests: Mapping[str, str], variants: int) -> Made:
    made = Made()
    modules = []
    for number, text in enumerate(tests.values()):
        source = text.encode()
        root = None if NO_MODULE.search(text) else parse("rust", source)
        if root is None:
            continue
        pool = [text_of(n)[1:-1] for n in walk(root) if n.type == "string_literal"]
        for variant in range(variants):
            changed = edited(source, _others(root, Variant(variant, pool)))
            again = parse("rust", changed)
            if again is None:
                break
            owners: list[str] = []
            rewritten = edited(changed, _reports(again, f"{number}, {variant}", owners)).decode()
            made.owners |= {(number, site): name for site, name in enumerate(owners, start=1)}
            modules.append(f"#[allow(warnings)]\nmod oc_{number}_{variant} {{\n{rewritten}\n}}\n")
    made.files = {PROGRAM: SUPPORT + "".join(modules)} if modules else {}
    return made


def command(files: Sequence[str], python: str) -> str:
    """A lock that names no crate but this one says nothing, and an older cargo may not read it."""
    unlocked = '[ "$(grep -c "^\\[\\[package\\]\\]" Cargo.lock 2>/dev/null)" -gt 1 ] || rm -f Cargo.lock'
    run = "exec cargo test --offline --no-fail-fast --tests -- --test-threads=1 --nocapture"
    return f"export {ENVIRONMENT}; {unlocked}; {run} >&$RESULT_FD 2>/dev/null"


def passed(output: str) -> frozenset[str]:
    """Names are those of the tests themselves: probes stand in modules."""
    ends = re.findall(r"^test (\w+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", output, re.M)
    return frozenset(name for name, end in ends if end == "ok") - {name for name, end in ends if end != "ok"}


def _others(root: Node, variant: Variant) -> Iterator[Edit]:
    for node in walk(root) if variant.number else ():
        if any(above.type in UNCHANGED for above in ancestors(node)) or _is_message(node):
            continue
        text = text_of(node)
        made = text
        if node.type == "string_content" and "\\" not in text and "{" not in text:
            made = variant.text(text)
        elif node.type == "integer_literal" and (found := re.fullmatch(r"([1-9]\d*)([iu]\w+)?", text)):
            bound = SIGNED.get(found[2] or "", 127 if int(found[1]) <= 127 else 255 if int(found[1]) <= 255 else None)
            made = f"{variant.integer(int(found[1]), bound)}{found[2] or ''}"
        elif node.type == "float_literal" and re.fullmatch(r"\d+\.\d+", text):
            made = f"{abs(variant.real(float(text)))!r}"
        if made != text and '"' not in made:
            yield Edit(node.start_byte, node.end_byte, made)


def _is_message(node: Node) -> bool:
    """Beyond what an assertion compares, its arguments are words for people."""
    for above in ancestors(node):
        if above.type == "macro_invocation" and (kind := ASSERTION.fullmatch(_macro(above))):
            given = _arguments(above)
            spoken = given[1 if kind[1] == "assert" else 2 :]
            return any(start <= node.start_byte < end for start, end in spoken)
    return False


def _macro(node: Node) -> str:
    name = node.child_by_field_name("macro")
    return text_of(name) if name is not None else ""


def _arguments(call: Node) -> list[tuple[int, int]]:
    """Spans of the arguments of a macro, which are tokens: commas within brackets belong to an argument."""
    tree = next((child for child in call.children if child.type == "token_tree"), None)
    if tree is None:
        return []
    found, start = [], tree.start_byte + 1
    for child in tree.children[1:-1]:
        if child.type == "," or text_of(child) == ",":
            found.append((start, child.start_byte))
            start = child.end_byte
    return [*found, (start, tree.end_byte - 1)]


def _reports(root: Node, place: str, owners: list[str]) -> Iterator[Edit]:
    """Edits that make assertions report; the functions that these stand in are added to `owners`."""
    source = root.text or b""
    for node in walk(root):
        kind = ASSERTION.fullmatch(_macro(node)) if node.type == "macro_invocation" else None
        if kind is None or _is_in_macro(node):
            continue
        owners.append(_function(node))
        given = [source[a - root.start_byte : b - root.start_byte].decode().strip() for a, b in _arguments(node)]
        at = f"{place}, {len(owners)}"
        if kind[1] == "assert" and given and given[0]:
            yield Edit(node.start_byte, node.end_byte, f"oc_holds!({at}, {given[0]})")
        elif kind[1] != "assert" and len(given) > 1 and all(given[:2]):
            yield Edit(node.start_byte, node.end_byte, f"oc_sides!({at}, {given[0]}, {given[1]})")


def _function(node: Node) -> str:
    names = [a.child_by_field_name("name") for a in ancestors(node) if a.type == "function_item"]
    return text_of(names[-1]) if names and names[-1] is not None else ""


def _is_in_macro(node: Node) -> bool:
    return any(above.type in ("macro_invocation", "macro_definition") for above in ancestors(node))
