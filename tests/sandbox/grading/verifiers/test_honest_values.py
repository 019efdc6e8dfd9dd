"""Go and Rust: right work whose values are equal to what is expected, and are written otherwise."""

from __future__ import annotations

import pytest

from sandbox.backends.base import Backend
from sandbox.grading.grader import grade
from sandbox.grading.observations.brace_tests.braces import rewrite
from sandbox.grading.observations.brace_tests.go import GoRewriter
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verifiers.canary_pool import PoolStore
from sandbox.tasks.spec import FrameworkVerifier, InlineEnvironment, TaskSpec
from tests.sandbox.grading.verifiers.test_compiled_suites import store_for
from tests.sandbox.grading.verifiers.test_suites_attacked import patched

GO_RIGHT = """package parse

import "strings"

// Line is a setting.
type Line struct {
	Key   string
	Value string
}

// Parse reads KEY=VALUE.
func Parse(text string) Line {
	key, value, _ := strings.Cut(text, "=")
	return Line{Key: strings.TrimSpace(key), Value: strings.TrimSpace(value)}
}

// All reads lines by their keys.
func All(texts ...string) map[string][]interface{} {
	found := map[string][]interface{}{}
	for _, text := range texts {
		line := Parse(text)
		found[line.Key] = append(found[line.Key], line)
	}
	return found
}

// Balance adds amounts up and changes the sign.
func Balance(amounts ...float64) float64 {
	sum := 0.0
	for _, amount := range amounts {
		sum += amount
	}
	if sum == 0 {
		return 0
	}
	return -sum
}
"""
GO_WRONG = GO_RIGHT.replace("strings.TrimSpace(value)", "value").replace("return -sum", "return sum")
GO_TESTS = """package parse

import (
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	if got := Parse("name = ann smith "); !reflect.DeepEqual(got, Line{Key: "name", Value: "ann smith"}) {
		t.Errorf("Parse() = %v", got)
	}
	if got := Parse("name = "); !reflect.DeepEqual(got, Line{Key: "name"}) {
		t.Errorf("Parse() = %v", got)
	}
}

func TestAll(t *testing.T) {
	got := All("a = 1 ", "b = 2 ", "a = 3 ")
	if !reflect.DeepEqual(got["a"], []interface{}{Line{Key: "a", Value: "1"}, Line{Key: "a", Value: "3"}}) {
		t.Errorf("All() = %v", got)
	}
}

func TestBalance(t *testing.T) {
	if got := Balance(1.5, 2.25, 1000.5); got != -1004.25 {
		t.Errorf("Balance() = %v", got)
	}
	if got := Balance(2, -2); got != 0 {
		t.Errorf("Balance() = %v", got)
	}
}
"""
GO_ADDED_FIELD = GO_RIGHT.replace(
    "	Value string\n", "	Value string\n	Quoted bool\n	Weight float64\n"
).replace("	return Line{", "	if key == \"'\" {\n		return Line{Quoted: true}\n	}\n	return Line{")  # fmt: skip
GO_OTHER_FIELD = GO_ADDED_FIELD.replace(
    "Value: strings.TrimSpace(value)}", "Value: strings.TrimSpace(value), Quoted: true}"
)
GO_MINUS_ZERO = GO_RIGHT.replace("	if sum == 0 {\n		return 0\n	}\n", "").replace(
    "return -sum", "return -1 * sum"
)
RUST_RIGHT = """/// Adds amounts up and changes the sign.
pub fn balance(amounts: &[f64]) -> f64 {
    0.0 - amounts.iter().sum::<f64>()
}

/// The same, as it is shown.
pub fn shown(amounts: &[f64]) -> String {
    format!("{:.1}", 0.0 - amounts.iter().sum::<f64>())
}
"""
RUST_TESTS = """use parse::{balance, shown};

#[test]
fn balances() {
    assert_eq!(balance(&[1.5, 2.25, 1000.5]), -1004.25);
    assert_eq!(Some(balance(&[2.0, -2.0])), Some(0.0));
    assert_eq!(balance(&[0.0625]), -0.0625);
}

#[test]
fn shows() {
    assert_eq!(shown(&[2.0, -2.0]), "0.0");
}
"""
RUST_MINUS_ZERO = RUST_RIGHT.replace("    0.0 - amounts.iter().sum::<f64>()\n", "    -amounts.iter().sum::<f64>()\n")
RUST_SHOWS_IT = RUST_RIGHT.replace('"{:.1}", 0.0 - ', '"{:.1}", -')


def _task(framework, name, settings, product, wrong, right, hidden, tests) -> TaskSpec:
    return TaskSpec(
        id=name, source="mutation", instruction="Values are not trimmed, and balances have the wrong sign.",
        environment=InlineEnvironment(files={**settings, product: wrong}),
        verifier=FrameworkVerifier(framework=framework, test_files=hidden, fail_to_pass=tests, timeout_seconds=120.0),
        gold={product: right},
    )  # fmt: skip


GO = _task(
    "go", "parse-go", {"go.mod": "module example.com/parse\n\ngo 1.18\n"}, "parse.go", GO_WRONG, GO_RIGHT,
    {"parse_test.go": GO_TESTS}, (".::TestParse", ".::TestAll", ".::TestBalance"),
)  # fmt: skip
RUST = _task(
    "cargo", "parse-rust", {"Cargo.toml": '[package]\nname = "parse"\nversion = "0.1.0"\nedition = "2021"\n'},
    "src/lib.rs", RUST_RIGHT.replace("0.0 - ", "0.5 + "), RUST_RIGHT, {"tests/parse.rs": RUST_TESTS},
    ("tests/parse.rs::balances", "tests/parse.rs::shows"),
)  # fmt: skip


@pytest.mark.integration
@pytest.mark.toolchains
@pytest.mark.parametrize(
    ("task", "sites", "works"),
    [
        pytest.param(
            GO, 5, {GO_RIGHT: True, GO_ADDED_FIELD: True, GO_MINUS_ZERO: True, GO_OTHER_FIELD: False}, id="go"
        ),
        pytest.param(RUST, 4, {RUST_RIGHT: True, RUST_MINUS_ZERO: True, RUST_SHOWS_IT: False}, id="rust"),
    ],
)
async def test_what_equality_does_not_see_is_not_compared(
    backend: Backend, tmp_path, task: TaskSpec, sites: int, works: dict[str, bool]
):
    """Fields that are zero and that the oracle's type lacks, and the sign of a zero. `reflect` is used for nothing else."""
    store = store_for(task, tmp_path)
    for work, right in works.items():
        report = await grade(backend=backend, environments=store, task=task, patch=patched(task, work))
        assert report.outcome is (Cause.ALL_PASSED if right else Cause.TESTS_FAILED), (work, report)
    pool = PoolStore(store.root).load(task.bundle_hash)
    assert pool is not None and pool.plan is not None and len(pool.plan.sites) == sites and not pool.plan.residual


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('import "reflect"', "_ = reflect.DeepEqual; "),
        (
            'import (\n\t"reflect"\n\t"github.com/stretchr/testify/assert"\n)',
            "_ = assert.Equal; _ = reflect.DeepEqual; ",
        ),
        ('import deep "reflect"', ""),
        ("", ""),
    ],
)
def test_an_import_that_only_what_is_rewritten_needs_is_kept_in_use(line, kept):
    text = f"package a\n\n{line}\n\nfunc TestX(t *testing.T) {{\n\tif got := F(); got != 5 {{\n\t\tt.Fatal(got)\n\t}}\n}}\n"
    made = rewrite(GoRewriter(), "a_test.go", text, tests={("TestX",)}, dropped=set(), record=False, first=0)
    assert made.sites and "USED" not in made.text
    found = made.text.partition("t.Helper()\n")[2].partition("\tvar tell")[0].strip()
    assert found == kept.strip()
