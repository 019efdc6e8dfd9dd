"""Tests of Go, Rust and JavaScript are found, changed and prepared without a compiler."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.grading.canaries.go import GoTests
from sandbox.grading.canaries.insertion import (
    MAX_BLOCK_BYTES,
    MAX_SOURCE_BYTES,
    Renaming,
    blocks_by_name,
    insert_canaries,
)
from sandbox.grading.canaries.javascript import JavaScriptTests
from sandbox.grading.canaries.rust import RustTests
from sandbox.grading.verifiers.canary_pool import candidate_siblings
from sandbox.tasks.spec import FrameworkVerifier

GO = """package shop

import "testing"

// func TestOld(t *testing.T) { }
func TestTotal(t *testing.T) {
	s := "} func TestInner(t *testing.T) {"
	if got := Total(s, '}'); got != 5 {
		t.Fatalf("got %d", got)
	}
	cases := []struct{ in, want int }{{in: 1, want: 2}}
	_ = cases
	assert.Equal(t, "text", Name(7))
	if a() != 3 && b() {
	}
}

func helper(t *testing.T) {}
"""
RUST = '''use shop::total;

#[test]
fn adds<'a>() { assert_eq!(total("}"), 5); }

mod more {
    #[test]
    #[ignore = "x"]
    fn slow() {
        let c = '}'; // }
        assert_eq!("done", name(4), "message {}", 1);
        assert!(x == 3);
    }
}
'''.replace("fn adds<'a>()", "fn adds()")  # fmt: skip
JAVASCRIPT = """import { test, describe, it, expect } from 'vitest';

describe('a group', () => {
  it("adds", () => { expect(add(1, 2)).toBe(3); });
  it('matches', async () => {
    expect(text.replace(/[)}'"]/g, '')).toEqual({ name: 'x', list: [1, true] });
    expect(f(1)).not.toBe(9);
    assert.strictEqual(g(`}${1}`), 'end');
    expect(h()).toEqual(other(8));
  });
});
test('top', () => {});
const notATest = test.each([1]);
"""


def found(language, source):
    return {
        names: sorted(text[v.start : v.end].decode() for text in [block] for v in language.values(block))
        for names, block in blocks_by_name(language, source.encode()).items()
    }


def test_go():
    assert found(GoTests(), GO) == {("TestTotal",): ['"text"', "2", "5"]}


def test_rust():
    assert found(RustTests(), RUST) == {("adds",): ["5"], ("more", "slow"): ['"done"']}


def test_javascript():
    assert found(JavaScriptTests(), JAVASCRIPT) == {
        ("a group", "adds"): ["3"],
        ("a group", "matches"): ["'end'", "'x'", "1", "true"],
        ("top",): [],
    }


CASES = {
    "go": (GoTests(), "shop_test.go", GO, ("shop::TestTotal",), b"func Test"),
    "cargo": (RustTests(), "tests/shop.rs", RUST, ("tests/shop.rs::adds", "tests/shop.rs::more::slow"), b"#[test]"),
    "jest": (
        JavaScriptTests(),
        "shop.test.ts",
        JAVASCRIPT,
        ("shop.test.ts::a group::adds", "shop.test.ts::top"),
        b"it(",
    ),
}


@pytest.mark.parametrize("framework", CASES)
@pytest.mark.parametrize("seed", range(4))
def test_prepared_files_hold_each_test_and_each_sibling(framework, seed):
    language, path, source, ids, mark = CASES[framework]
    ids = tuple(test_id.replace("shop::", ".::") for test_id in ids)
    verifier = FrameworkVerifier(framework=framework, test_files={path: source}, fail_to_pass=ids)
    draw = random.Random(seed)
    siblings = candidate_siblings(language, verifier, draw)[:3]
    assert siblings
    prepared = insert_canaries(
        language, {path: source}, ids, siblings, renaming=Renaming(files=True, names=True), draw=draw
    )
    ((new_path, text),) = prepared.files.items()
    assert new_path != path and new_path.endswith(path[path.index("test") + 4 :] if framework != "cargo" else ".rs")
    before, after = language.blocks(source.encode()), language.blocks(text)
    assert len(after) == len(before) + len(siblings)
    written = {language.identify(language.parse(f"{language.where(new_path)}::{'::'.join(b.names)}")) for b in after}
    assert set(prepared.ids.values()) <= written and prepared.must_fail <= written
    assert text.count(mark) >= source.encode().count(mark) + (framework != "jest") * len(siblings)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([GoTests(), RustTests(), JavaScriptTests()]),
    st.sampled_from([GO, RUST, JAVASCRIPT]),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 30), st.text(max_size=6)), max_size=4),
)
def test_no_source_is_too_strange(language, source, damage):
    text = source
    for at, length, new in damage:
        text = text[:at] + new + text[at + length :]
    data = text.encode("utf-8", "replace")
    for block in language.blocks(data):
        assert 0 <= block.start <= block.name_start < block.name_end <= block.end <= len(data)
    for block in blocks_by_name(language, data).values():
        for value in language.values(block):
            assert 0 <= value.start < value.end <= len(block)


@pytest.mark.parametrize("language", [GoTests(), RustTests(), JavaScriptTests()])
@pytest.mark.parametrize(
    "piece",
    [
        "if ",
        "{",
        "(",
        "!= ",
        "1:",
        "/* ",
        "'",
        "it('",
        "#[test]\n",
        "expect(",
        "a: 1, ",
        "toBe(1:1:",
        " \n",
        "it('a',1)\n",
        "mod a {",
    ],
)
def test_hostile_sources_take_no_time(language, piece):
    source = (piece * (MAX_SOURCE_BYTES // len(piece)))[:MAX_SOURCE_BYTES].encode()
    block = b"#[test]\nfn a() { assert_eq!(" + piece.encode() * (MAX_BLOCK_BYTES // len(piece))
    began = time.process_time()
    blocks_by_name(language, source)
    language.values(block[:MAX_BLOCK_BYTES])
    assert time.process_time() - began < 20.0


@pytest.mark.parametrize(
    ("kind", "text"), [("int", "4711"), ("str", '"a long enough text"'), ("float", "3.25"), ("bool", "true")]
)
def test_other_values_are_whole_ones(kind, text):
    draw = random.Random(4)
    made = [GoTests().other(kind, text, ['"other words"'], draw) for _ in range(40)]
    assert all(other is not None and other != text for other in made)
    if kind in ("int", "str"):
        near = [
            other
            for other in made
            if sum(a != b for a, b in zip(other, text, strict=False)) < 2 and len(other) == len(text)
        ]
        assert len(set(made)) > 10 and len(near) <= 1, "more than a letter differs"
