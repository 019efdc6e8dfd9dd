"""Declarations of Go and Rust test files: what leaves a file with the tests that use it, and what decides."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.grading.observations.brace_tests.go import GoRewriter
from sandbox.grading.observations.brace_tests.items import Itemised, Reached, without_remarks
from sandbox.grading.observations.brace_tests.rust import RustRewriter
from sandbox.grading.observations.trimming import trimmed

GO, RUST = GoRewriter(), RustRewriter()
SIZE = 100_000
GO_PATH, RUST_PATH = "shop/a_test.go", "tests/a.rs"

GO_FILE = """// Package shop: 7351.
package shop; import ocfmt "fmt"

import (
	"fmt" // 7351
	"os"
	"strings"
	"github.com/stretchr/testify/v2"
	"testing"
)

var cases = []struct{ net, gross Money }{
	{New(100), New(7351)},
}

const (
	first = iota
	second
)

var (
	single = 7351
	double = map[string]int{
		"x": 7351,
	}
	_ fmt.Stringer = (*fake)(nil)
)

//go:embed testdata/x
var golden string

type fake struct{ n int }

func (f *fake) String() string { return "" }

func (f *fake) Check(t *testing.T) {
	if f.n != 5 { t.Fatal() }
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }

func setup(t *testing.T) string {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReports(t *testing.T) {
	single := 3
	if ocDiffers0(t, 0, F(setup(t), single)) || err != nil {
		t.Fatalf("7351 is %d", 7351)
	}
}

func polite(t *testing.T, text string) {
	if text != golden { t.Fatal("impolite") }
}

func TestHelper(t *testing.T) { polite(t, F(double)) }

func TestMethod(t *testing.T) { (&fake{}).Check(t) }

func TestElsewhere(t *testing.T) { other.Compare(t, F(1), "7351") }

func TestBoth(t *testing.T) {
	if err != nil || !strings.HasPrefix(F(1), "7351") {
		t.Fatal(testify.X, cases, second)
	}
}

func ocDiffers0(t interface{}, site int, values ...interface{}) bool { return false }

func ExampleF() {
	// Output: 7351
}
"""
RUST_FILE = """//! 7351
#![allow(dead_code)]
macro_rules! oc_observe { ($a:expr) => { } } use greet::greet;
mod common;
use common::{check, other};
use std::io::Write;
extern crate foo;

const WANTED: &str = "7351 // no comment";
static TABLE: [i32; 3] = [1, 2, 7351];

#[derive(Debug)]
struct Fake { n: i32 }

impl Fake {
    fn verify(&self) { assert!(self.n == 7351); }
}

trait Polite { fn polite(&self); }
impl Polite for String { fn polite(&self) { assert!(self == "7351"); } }

fn help() -> Result<i32, String> { Ok(1) } // 7351

#[test]
fn reports() { oc_observe!(0, 0, greet(help().expect("7351"))); other(); }

#[test]
fn helped() { check(greet(WANTED)); }

#[should_panic]
#[test]
fn panics() { greet(TABLE); Fake { n: 1 }; }

mod inner {
    use super::*;
    const WANTED_TOO: i32 = 7351;
    #[test]
    fn by_a_method() { greet("ann").polite(); }
    #[test]
    fn reports_too() { oc_observe!(1, 0, greet(1)); }
}
"""
COMMON = 'pub fn check(text: &str) { assert!(text.starts_with("7351")); }\npub fn other() {}\n'
RUST_FILES = {RUST_PATH: RUST_FILE, "tests/common/mod.rs": COMMON}


def reached(rewriter: Itemised, files: dict[str, str]) -> Reached:
    return Reached(rewriter, {path: without_remarks(rewriter, path, text.encode()) for path, text in files.items()})


def test_a_test_of_go_decides_by_what_it_leads_to():
    assert reached(GO, {GO_PATH: GO_FILE}).deciding() == {
        GO_PATH: {("TestHelper",), ("TestMethod",), ("TestElsewhere",), ("TestBoth",)}
    }


@pytest.mark.parametrize(
    "beside",
    [
        'func init() { if F(1) != "x" { panic("") } }',
        "var _ = checked(F(1))",
        "func TestMain(m *testing.M) { is.True(1) }",
    ],
)
def test_beside_code_that_runs_by_itself_and_decides_every_test_does(beside):
    checked = 'func checked(got string) int {\n\tif got != "x" {\n\t\tpanic(got)\n\t}\n\treturn 1\n}\n'
    source = f"package shop\n\n{beside}\n\n{checked}\nfunc TestA(t *testing.T) {{\n}}\n"
    assert reached(GO, {GO_PATH: source}).deciding() == {GO_PATH: {("TestA",)}}


def test_what_no_kept_test_of_go_uses_leaves_its_file():
    made = reached(GO, {GO_PATH: GO_FILE}).only({GO_PATH: {("TestReports",)}})[GO_PATH].decode()
    said = trimmed(GO, {GO_PATH: made}, {GO_PATH: {("TestReports",)}})[GO_PATH]
    assert "7351" not in said and "iota" not in said and "golden" not in said and "Example" not in said
    assert all(word in said for word in ("TestReports", "setup(t", "TestMain", "ocDiffers0", "(*fake)(nil)"))
    assert '_ "strings"' in said and '_ "github.com/stretchr/testify/v2"' in said, "an import that is not used is none"
    assert '\n\t"os"' in said and '\n\t"fmt"' in said and 'ocfmt "fmt"' in said


def test_an_example_of_go_keeps_the_comment_that_decides_it():
    text = without_remarks(GO, GO_PATH, GO_FILE.encode()).decode()
    assert "// Output: 7351" in text and "//go:embed testdata/x" in text and "Package shop" not in text
    assert text.count("\n") == GO_FILE.count("\n")


def test_a_test_of_rust_decides_by_what_it_leads_to():
    assert reached(RUST, RUST_FILES).deciding() == {
        RUST_PATH: {("helped",), ("panics",), ("inner", "by_a_method")}, "tests/common/mod.rs": set(),
    }  # fmt: skip


def test_what_no_kept_test_of_rust_uses_leaves_its_files():
    kept = {RUST_PATH: {("reports",), ("inner", "reports_too")}}
    made = {path: text.decode() for path, text in reached(RUST, RUST_FILES).only(kept).items()}
    said = trimmed(RUST, made, {RUST_PATH: kept[RUST_PATH]})
    assert "7351" not in "".join(said.values())
    assert "use common::{ other};" in said[RUST_PATH] and "#![allow(dead_code)]" in said[RUST_PATH]
    assert said["tests/common/mod.rs"].strip() == "pub fn other() {}"


def test_of_canaries_those_stay_that_need_nothing_which_the_compared_tests_do_not():
    canaries = """
func TestWrong(t *testing.T) {
	if ocDiffers0(t, 0, F(setup(t), 1)) || F(2) != 99 { t.Fatal() }
}

func TestPolite(t *testing.T) { polite(t, F(double)) }
"""
    made = reached(GO, {GO_PATH: GO_FILE + canaries})
    both = {GO_PATH: {("TestWrong",), ("TestPolite",)}}
    assert made.beside({GO_PATH: {("TestReports",)}}, both) == {GO_PATH: {("TestWrong",)}}
    assert made.beside({}, both) == {GO_PATH: set()}, "`setup` is needed by none that is compared"


def test_the_products_own_code_beside_unit_tests_of_rust_stays():
    source = "pub fn work() { assert!(true); }\n\n#[test]\nfn a() { work(); }\n\n#[test]\nfn b() {}\n"
    made = reached(RUST, {"src/tests.rs": source}).only({"src/tests.rs": {("b",)}})["src/tests.rs"].decode()
    assert "pub fn work()" in made and "fn a()" not in made and "fn b()" in made


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([(GO, GO_PATH, GO_FILE), (RUST, RUST_PATH, RUST_FILE)]),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 60), st.text(max_size=6)), max_size=4),
)
def test_no_source_is_too_strange(given_, damage):
    rewriter, path, text = given_
    for at, length, new in damage:
        text = text[:at] + new + text[at + length :]
    data = text.encode("utf-8", "replace")
    for item in rewriter.items(path, data, data):
        assert 0 <= item.start <= item.end <= len(data)
    made = Reached(rewriter, {path: without_remarks(rewriter, path, data)})
    made.deciding()
    made.only({})


@pytest.mark.parametrize("rewriter", [GO, RUST])
@pytest.mark.parametrize(
    "piece", ["(t, ", "var a = b\n", "#[a] ", "use common::{a, b};\n", "func a() {}\n", "if x { t.Fatal(", "mod a {"]
)
def test_hostile_sources_take_no_time(rewriter, piece):
    path = GO_PATH if rewriter is GO else RUST_PATH
    head = (
        "package a\nfunc TestA(t *testing.T) {\n}\n"
        if rewriter is GO and piece[0] != "("
        else "func a(t *testing.T) {\n"
    )
    source = (head + piece * (SIZE // len(piece)) + "}" * 5000).encode()
    began = time.process_time()
    made = Reached(rewriter, {path: without_remarks(rewriter, path, source)})
    made.deciding()
    made.only({})
    assert time.process_time() - began < 10.0
