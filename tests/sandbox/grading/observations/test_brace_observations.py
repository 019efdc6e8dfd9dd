"""Assertions of JavaScript, Go and Rust tests that report: which ones are found, and what leaves the file."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.grading.canaries.insertion import MAX_BLOCK_BYTES, MAX_SOURCE_BYTES, blocks_of
from sandbox.grading.observations.brace_tests.braces import Rewriter, rewrite
from sandbox.grading.observations.brace_tests.go import GoRewriter
from sandbox.grading.observations.brace_tests.javascript import JavaScriptRewriter
from sandbox.grading.observations.brace_tests.rust import RustRewriter
from sandbox.grading.observations.hiding import deciding_tests, only_tests

JS, GO, RUST = JavaScriptRewriter(), GoRewriter(), RustRewriter()
REWRITERS: tuple[Rewriter, ...] = (JS, GO, RUST)


def delivered(rewriter: Rewriter, source: str, *, record: bool = False, dropped: tuple[int, ...] = ()):
    tests = {block.names for block in blocks_of(rewriter.language, source.encode())}
    return rewrite(rewriter, "a.test", source, tests=tests, record=record, dropped=dropped)


def demanded(rewriter: Rewriter, source: str) -> list[str]:
    return [site.leaves[-1].source for site in delivered(rewriter, source).sites]


def js(body: str) -> str:
    return f"test('it', async () => {{\n  {body}\n}});\n"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("assert.strictEqual(f(1), 7351);", ["7351"]),
        ("assert.deepStrictEqual(f(1), { name: 'zebra', list: [7351] });", ["{ name: 'zebra', list: [7351] }"]),
        ("assert.equal(f(1), 'zebra', 'a message');", ["'zebra'"]),
        ("strictEqual(f(1), 7351);", ["7351"]),
        ("expect(f(1)).toBe(7351);", ["7351"]),
        ("expect(f(1)).toEqual(['zebra', 7351]);", ["['zebra', 7351]"]),
        ("expect(f(1)).toHaveLength(7351);", ["7351"]),
        ("await expect(f(1)).resolves.toBe(7351);", ["7351"]),
        ("assert.throws(() => f(1), TypeError);", ["TypeError"]),
        ("assert.throws(() => f(1), /zebra+/);", ["Object"]),
        ("expect(() => f(1)).toThrow('zebra');", ["Object"]),
        ("await assert.rejects(f(1), RangeError);", ["RangeError"]),
        ("const want = [7351];\n  assert.deepStrictEqual(f(1), want);", ["want"]),
        ("for (const c of [{ in: 1, want: 7351 }, { in: 2, want: 'zebra' }]) expect(f(c.in)).toBe(c.want);", ["c.want"]),
        ("for (const [a, want] of [[1, 7351], [2, 'zebra']]) {\n  assert.equal(f(a), want);\n  }", ["want"]),
        ("[[1, 7351]].forEach(([a, want]) => {\n  assert.equal(f(a), want);\n  });", ["want"]),
        # Left as they are.
        ("expect(f(1)).not.toBe(9);", []),
        ("assert.ok(f(1));", []),
        ("assert.strictEqual(f(1), g(2));", []),
        ("assert.strictEqual(7, 7);", []),
        ("return expect(f(1)).resolves.toBe(9);", []),
        ("const want = 3;\n  g(want);\n  assert.equal(f(1), want);", []),
        ("assert.throws(() => f(1), { code: 9 });", []),
        ("assert.throws(() => f(1), /(?<year>a+)+/);", []),
    ],
)  # fmt: skip
def test_javascript(body, found):
    assert demanded(JS, js(body)) == found
    text = delivered(JS, js(body)).text
    if found:
        assert (
            "7351" not in text
            and "zebra" not in text
            and not any(f"{x}Error" in body and x in text.split("})();")[1] for x in ("Type", "Range"))
        )
    assert text.count("\n") == js(body).count("\n")
    assert [len(site.leaves) for site in delivered(JS, js(body), record=True).sites] == [
        len(site.leaves) for site in delivered(JS, js(body)).sites
    ]


def go(body: str) -> str:
    imports = "; ".join(f'import "{name}"' for name in ("testing", "strings", "fmt", "reflect"))
    return f"package shop\n\n{imports}\n\nfunc TestIt(t *testing.T) {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("\tif got := F(1); got != 7351 {\n\t\tt.Fatalf(\"got %d\", got)\n\t}", ["7351"]),
        ("\tif F(1) != \"zebra\" || G(2) != 7351 {\n\t\tt.Error(\"x\")\n\t}", ['"zebra"', "7351"]),
        ("\tif 7351 != F(1) {\n\t\tt.Error(\"x\")\n\t}", ["7351"]),
        ("\twant := []int{7351}\n\tif got := F(1); !reflect.DeepEqual(got, want) {\n\t\tt.Error(got, want)\n\t}", ["want"]),
        ("\tassert.Equal(t, 7351, F(1))", ["7351"]),
        ("\tfor _, c := range []struct{ in, want int }{{1, 7351}, {2, 7351}} {\n\t\tif got := F(c.in); got != c.want {\n"
         "\t\t\tt.Error(got)\n\t\t}\n\t}", ["c.want"]),
        ("\tfor _, c := range []struct {\n\t\tin   int\n\t\twant string\n\t}{\n\t\t{in: 1, want: \"zebra\"},\n\t} {\n"
         "\t\tif got := F(c.in); got != c.want {\n\t\t\tt.Error(got)\n\t\t}\n\t}", ["c.want"]),
        # Left as they are.
        ("\tif err := F(1); err != nil {\n\t\tt.Fatal(err)\n\t}", []),
        ("\tif F(1) != 3 && G(1) != 4 {\n\t\tt.Fatal()\n\t}", []),
        ("\tif n := F(1); n != 3 {\n\t\tn = 4\n\t}", []),
        ("\tif F(1) == 3 {\n\t\tt.Fatal()\n\t}", []),
        ("\tif got := F(1); got != G(2) {\n\t\tt.Fatal(got)\n\t}", []),
    ],
)  # fmt: skip
def test_go(body, found):
    assert demanded(GO, go(body)) == found
    text = delivered(GO, go(body)).text
    assert not found or ("7351" not in text and "zebra" not in text)
    changed, kept = text.split("\n"), go(body).split("\n")
    assert all(a == b for a, b in zip(changed[1:4], kept[1:4], strict=True)), "lines keep their numbers"


def rust(body: str) -> str:
    return f"//! Tests.\nuse shop::f;\n\n#[test]\nfn it() {{\n    {body}\n}}\n"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("assert_eq!(f(1), 7351);", ["7351"]),
        ("assert_eq!(\"zebra\", f(1), \"message {}\", 1);", ['"zebra"']),
        ("assert_eq!(f(1), Some(7351u8));", ["Some(7351u8)"]),
        ("assert_eq!(f(1), vec![\"zebra\".to_string(), String::from(\"zebra\")]);",
         ['vec!["zebra".to_string(), String::from("zebra")]']),
        ("assert_eq!(f(1), Ok(true));", ["Ok(true)"]),
        # Left as they are.
        ("assert_eq!(f(1), g(2));", []),
        ("assert!(f(1) == 3);", []),
        ("assert_ne!(f(1), 3);", []),
        ("assert_eq!(f(1), None);", []),
    ],
)  # fmt: skip
def test_rust(body, found):
    assert demanded(RUST, rust(body)) == found
    text = delivered(RUST, rust(body)).text
    assert not found or ("7351" not in text and "zebra" not in text and "true" not in text.split("}} }")[1])
    assert text.startswith("//! Tests.\n") and text.count("\n") == rust(body).count("\n")


@pytest.mark.parametrize(
    ("rewriter", "source", "decides"),
    [
        (JS, js("assert.strictEqual(f(1), 7);\n  expect(f(2)).toEqual([8]);"), False),
        (JS, js("assert.throws(() => f(1), TypeError);"), False),
        (JS, js("assert.strictEqual(f(1), 7);\n  assert.ok(f(2));"), True),
        (JS, js("expect(f(1)).not.toBe(9);"), True),
        (GO, go('\tif got := F(1); got != 7 {\n\t\tt.Fatalf("got %d", got)\n\t}'), False),
        (GO, go("\tgot, err := F(1)\n\tif err != nil {\n\t\tt.Fatal(err)\n\t}\n\tif got != 7 {\n\t\tt.Error(got)\n\t}"), False),
        (GO, go("\tif F(1) != 3 && G(1) != 4 {\n\t\tt.Fatal()\n\t}"), True),
        (GO, go("\tif got := F(1); got != 7 {\n\t\tt.Fatal(got)\n\t}\n\trequire.True(t, G(1))"), True),
        (JS, js("assert.strictEqual(Buffer.compare(f(1), Buffer.from('Good day')), 0);"), True),
        (JS, js("assert.strictEqual(new Set([f(1), 'Good day']).size, 1);"), True),
        (JS, js("assert.strictEqual(new Map([['Good day', 7]]).get(f(1)), 7);"), True),
        (JS, js("assert.strictEqual(f(new Map([['a', 1]]), new Set([2])), 7);"), False),
        # Comparisons within what is reported.
        (GO, go('\tif n := strings.Count(F("a"), "Good day"); n != 1 {\n\t\tt.Fatal(n)\n\t}'), True),
        (GO, go('\tif strings.Index(F("a"), "Good day") != 0 {\n\t\tt.Fatal()\n\t}'), True),
        (GO, go('\tif got := strings.HasPrefix(F("a"), "Good"); got != true {\n\t\tt.Fatal()\n\t}'), True),
        (GO, go('\tn := 0\n\tfor _, x := range All() {\n\t\tif x == "Good day" {\n\t\t\tn++\n\t\t}\n\t}\n'
                "\tif n != 1 {\n\t\tt.Fatal(n)\n\t}"), True),
        (GO, go('\tif got := map[string]int{"Good day": 7}[F(1)]; got != 7 {\n\t\tt.Fatal(got)\n\t}'), True),
        (GO, go('\tword := "Good day"\n\tif got := strings.TrimPrefix(F(1), word); got != "!" {\n\t\tt.Fatal()\n\t}'), True),
        (GO, go('\tr := strings.NewReplacer("Good day", "x")\n\tif got := r.Replace(F(1)); got != "x" {\n\t\tt.Fatal()\n\t}'),
         True),
        (GO, go('\tvar got string\n\tfmt.Sscanf(F(1), "Good day %s", &got)\n\tif got != "a" {\n\t\tt.Fatal()\n\t}'), True),
        (RUST, rust('let word = "Good day"; assert_eq!(f(1).trim_start_matches(word), "!");'), True),
        (RUST, rust('let kinds = HashMap::from([("Good day", 7)]); assert_eq!(kinds.get(f(1).as_str()).copied(), Some(7));'),
         True),
        (JS, js("const seen = {};\n  seen[f(1)] = true;\n  assert.strictEqual(seen['Good day'], true);"), True),
        (JS, js("assert.strictEqual(/^Good day, (.*)$/.exec(f(1))[1], 'ann');"), True),
        (JS, js("assert.strictEqual(KINDS[f(1)], 'formal');"), True),
        (GO, go('\tif got := strings.Split(F("a"), ", "); len(got) != 2 {\n\t\tt.Fatal(got)\n\t}'), False),
        (GO, go('\tfor i := 0; i < 3; i++ {\n\t\tif got := F(i); got != 7 {\n\t\t\tt.Error(got)\n\t\t}\n\t}'), False),
        (GO, go("\tfor _, c := range []struct {\n\t\tin      int\n\t\twantErr bool\n\t}{{1, true}} {\n"
                "\t\t_, err := F(c.in)\n\t\tif (err != nil) != c.wantErr {\n\t\t\tt.Error(err)\n\t\t}\n\t}"), False),
        (RUST, rust("assert_eq!(f(1), 7);"), False),
        (RUST, rust("assert_eq!(f(1), 7); assert!(f(2) > 3);"), True),
        (RUST, rust('assert_eq!(f(1).starts_with("Good"), true);'), True),
        (RUST, rust('assert_eq!(f(1).matches("Good day").count(), 1);'), True),
        (RUST, rust('let at = f(1).find("Good day").unwrap();\n    assert_eq!(at, 14);'), True),
        (RUST, rust('assert_eq!(match f(1) { "Good day" => 1, _ => 0 }, 1);'), True),
        (RUST, rust('let n = f(1).iter().filter(|x| *x == "Good day").count();\n    assert_eq!(n, 14);'), True),
        (RUST, rust("let rows: Vec<&str> = f(1).split(',').collect();\n    assert_eq!(rows.len(), 3);"), False),
        (RUST, rust("assert_eq!(f(1).unwrap(), 7);"), False),
    ],
)  # fmt: skip
def test_what_a_test_decides_besides_its_reports_is_found(rewriter, source, decides):
    text = delivered(rewriter, source).text
    names = {block.names for block in blocks_of(rewriter.language, text.encode())}
    path = {JS: "a.test.js", GO: "shop/a_test.go", RUST: "tests/a.rs"}[rewriter]
    assert deciding_tests(rewriter, {path: text}) == {path: names if decides else set()}
    assert only_tests(rewriter, {path: text.encode()}, {path: names})[path].split() == text.encode().split()
    without = only_tests(rewriter, {path: text.encode()}, {})[path]
    assert not blocks_of(rewriter.language, without)


def test_an_assertion_that_is_dropped_stands_as_it_was():
    source = js("assert.equal(f(1), 3);\n  assert.equal(f(2), 4);")
    made = delivered(JS, source, dropped=(0,))
    assert [site.number for site in made.sites] == [1] and "assert.equal(f(1), 3)" in made.text
    assert delivered(JS, source, dropped=(0, 1)).text == source


def test_assertions_that_share_literals_are_dropped_together():
    source = js("const want = 3;\n  assert.equal(f(1), want);\n  assert.equal(g(1), want);")
    assert len(delivered(JS, source).sites) == 2
    assert delivered(JS, source, dropped=(1,)).text == source


TABLE = """	for _, c := range []struct{ in, want int }{{1, 2}} {
		if got := F(c.in); got != c.want {
			t.Error(got)
		}
	}"""
STRANGE = (
    js("for (const [a, want] of [[1, 2]]) expect(f(a)).toBe(want);\n  assert.throws(() => f(`}`), /a/);"),
    go(TABLE),
    rust("assert_eq!(f(1), Some(\"x\")); assert_eq!('}', g());"),
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(REWRITERS),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 30), st.text(max_size=6)), max_size=4),
    st.booleans(),
)
def test_no_source_is_too_strange(rewriter, damage, record):
    text = STRANGE[REWRITERS.index(rewriter)]
    for at, length, new in damage:
        text = text[:at] + new + text[at + length :]
    delivered(rewriter, text.encode("utf-8", "replace").decode(), record=record)


@pytest.mark.parametrize("rewriter", REWRITERS)
@pytest.mark.parametrize(
    "piece", ["assert.equal(f(", "expect(a).", "want: 1, ", "[[", "if a != 1 || ", "assert_eq!(", "struct {"]
)
def test_hostile_sources_take_no_time(rewriter, piece):
    head = {JS: "test('a', () => {\n", GO: "func TestA(t *testing.T) {\n", RUST: "#[test]\nfn a() {\n"}[rewriter]
    body = piece * (MAX_BLOCK_BYTES // len(piece) - 20)
    source = (head + body + "\n}\n" + ");\n" * 3) * max(1, MAX_SOURCE_BYTES // (MAX_BLOCK_BYTES * 8))
    began = time.process_time()
    delivered(rewriter, source)
    assert time.process_time() - began < 20.0


def test_numbers_say_nothing_of_what_was_withheld():
    """Two suites that differ in their literals only are delivered alike."""
    draw = random.Random(3)
    texts = {delivered(JS, js(f"assert.equal(f(1), {draw.randint(0, 99)});")).text for _ in range(20)}
    assert len(texts) == 1


def test_remarks_and_messages_leave_with_what_they_name():
    source = js("// 7351 is right\n  assert.equal(f(1), 7351, 'not 7351'); /* or\n 7351 */")
    text = delivered(JS, source).text
    assert "7351" not in text and text.count("\n") == source.count("\n")
    assert (
        "7351"
        not in delivered(GO, go('\tif got := F(1); got != 7351 {\n\t\tt.Fatalf("got %d, not 7351", got)\n\t}')).text
    )
