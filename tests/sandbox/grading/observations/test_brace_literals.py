"""Which literals of JavaScript, Go and Rust tests go into a call of the product, and which tests the others keep out of a first run."""

# ruff: noqa: E501 (a form stays in one line)
from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.grading.canaries.insertion import blocks_of
from sandbox.grading.canaries.javascript import JavaScriptTests
from sandbox.grading.observations.brace_tests.deciding import TestFile
from sandbox.grading.observations.brace_tests.go import GoRewriter
from sandbox.grading.observations.brace_tests.rust import RustRewriter
from sandbox.grading.observations.brace_tests.settling import settled
from sandbox.grading.observations.hiding import deciding_tests, untitled
from sandbox.grading.observations.literals import shown
from sandbox.grading.observations.rewriting import apart

GO, RUST = GoRewriter(), RustRewriter()
JS_HEAD = (
    "const { test, beforeEach, mock } = require('node:test');\nconst fs = require('node:fs');\nconst path = require('node:path');\n"
    "const { EventEmitter } = require('node:events');\nconst { execFileSync } = require('node:child_process');\n"
    "const { greet, greetAll, say, Basket, Money, Kind } = require('./shop.js');\n"
)
GO_HEAD = (
    'package shop\n\nimport (\n\t"encoding/json"\n\t"errors"\n\t"fmt"\n\t"net/http/httptest"\n\t"os"\n\t"path/filepath"\n\t"regexp"\n'
    '\t"strings"\n\t"testing"\n)\n\nfunc ocDiffers0(t interface{}, site int, values ...interface{}) bool { return false }\n\n'
)
RUST_HEAD = "use shop::{greet, greet_all, say, Basket, Kind, Money};\nuse std::collections::HashMap;\nuse std::fs;\n\n"


def js(body: str, top: str = "") -> tuple[str, str]:
    return "a.test.js", f"{JS_HEAD}{top}\ntest('it', (t) => {{\n  {body}\n}});\n"


def go(body: str, top: str = "") -> tuple[str, str]:
    return "shop/a_test.go", f"{GO_HEAD}{top}\nfunc TestIt(t *testing.T) {{\n\t{body}\n}}\n"


def rust(body: str, top: str = "") -> tuple[str, str]:
    return "tests/a.rs", f"{RUST_HEAD}{top}\n#[test]\nfn it() {{\n    {body}\n}}\n"


def see(value: str) -> str:
    """A report of Go."""
    return f"if ocDiffers0(t, 0, {value}) {{\n\t\tt.Fatal()\n\t}}"


def oc(value: str) -> str:
    """A report of Rust."""
    return f"oc_observe!(0, 0, {value});"


def leaves(path: str, text: str, **others: str) -> bool:
    """Whether the test is in no first run."""
    files = {path: text, **others}
    if path.endswith(".js"):
        file = TestFile(path, text.encode(), files)
        return not settled({path: file}, {path: {("it",)} & file.comparable()}, hooks=True).names[path]
    rewriter = GO if path.endswith(".go") else RUST
    (names,) = {block.names for block in blocks_of(rewriter.language, text.encode())}
    return names in deciding_tests(rewriter, files)[path]


INPUTS = {
    "js: an argument": js("$observe(0, 's', (greet('apple')));"),
    "js: a name": js("const name = 'apple';\n  $observe(0, 's', (greet(name)));"),
    "js: a column": js("for (const [name, want] of [['apple', undefined], ['pear', undefined]]) $observe(0, 's', (greet(name)));"),
    "js: a field": js("ROWS.forEach((row) => $observe(0, 's', (greet(row.name))));", "const ROWS = [{ name: 'apple', want: undefined }];"),
    "js: a pattern of fields": js("for (const { name } of ROWS) $observe(0, 's', (greet(name)));", "const ROWS = [{ name: 'apple', want: undefined }];"),
    "js: a helper": js("$observe(0, 's', (make('apple').total));", "const make = (name, count = 12) => new Basket(name, count);"),
    "js: a helper's result": js("$observe(0, 's', (greet(name())));", "function name() {\n  return 'apple';\n}"),
    "js: an object": js("const basket = new Basket();\n  basket.add('apple', 12);\n  basket.size = 25;\n  $observe(0, 's', (basket.total));"),
    "js: options": js("$observe(0, 's', (greet('apple', { polite: true, words: ['a', 'good one'] })));"),
    "js: a text": js("const name = 'apple';\n  $observe(0, 's', (greet(`an ${name} a day`)));"),
    "js: what is converted": js("$observe(0, 's', (greet(JSON.stringify({ fruit: 'apple', count: 12 }).toUpperCase())));"),
    "js: a file": js("const file = path.join(fs.mkdtempSync('/tmp/x-'), 'names.txt');\n  fs.writeFileSync(file, 'apple');\n  $observe(0, 's', (greet(file)));"),
    "js: a hook": js("$observe(0, 's', (basket.total));", "let basket;\nbeforeEach(() => {\n  basket = new Basket('apple');\n});"),
    "js: a double": js("$observe(0, 's', (say({ knock: () => 'apple' }, 'pear')));"),
    "js: a guard": js("if (process.platform === 'win32') return;\n  $observe(0, 's', (greet()));"),
    "js: a program": js("$observe(0, 's', (execFileSync(process.execPath, ['shop.js', 'apple'])));"),
    "js: the environment": js("process.env.SHOP_NAME = 'apple';\n  $observe(0, 's', (greet()));"),
    "js: a function of the product as one's own": js("$observe(0, 's', (['apple', 'pear'].map(greet)));"),
    "js: a constant of the product": js("$observe(0, 's', (greet(Kind.POLITE)));\n  $observe(1, 's', (Kind.POLITE));"),
    "js: a function that the product makes": js("const speak = say('apple');\n  $observe(0, 's', (speak('pear')));"),
    "js: a chain": js("$observe(0, 's', (new Basket().add('apple', 12).add('pear', 25).total));"),
    "js: what sorts": js("$observe(0, 's', (['apple', 'pear'].sort(greet)));"),
    "js: a time": js("await sleep(60);\n  $observe(0, 's', (greet()));", "const sleep = (ms) => new Promise((go) => setTimeout(go, ms));"),
    "js: constants of the product": js("$observe(0, 's', ([Kind.POLITE, Kind.RUDE]));"),
    "js: a throw": js("$raises(0, (() => new Money('apple')));"),
    "go: an argument": go(see('Greet("apple")')),
    "go: a table": go('for _, c := range []struct {\n\t\tname string\n\t\twant int\n\t}{{"apple", 0}, {name: "pear"}} {\n\t\t' + see("Greet(c.name)") + "\n\t}"),
    "go: parts": go('for _, c := range cases {\n\t\tt.Run(c.title, func(t *testing.T) {\n\t\t\t' + see("Greet(c.name)") + "\n\t\t})\n\t}",
                    'type row struct{ title, name string }\n\nvar cases = []row{{"an apple", "apple"}}\n'),
    "go: a tag": go("var got options\n\t" + see('Parse("x=12", &got)'), "type options struct {\n\tN int `flag:\"apple\"`\n}\n"),
    "go: a complaint": go('for _, c := range []struct{ title, name string }{{"an apple", "pear"}} {\n\t\tt.Run(c.title, func(t *testing.T) {\n\t\t\tif ocDiffers0(t, 0, Greet(c.name)) {\n\t\t\t\tt.Errorf("%s fails", c.title)\n\t\t\t}\n\t\t})\n\t}'),
    "go: a map": go('for name, count := range map[string]int{"apple": 12} {\n\t\t' + see("Greet(name, count)") + "\n\t}"),
    "go: an object": go('b := NewBasket("apple")\n\tb.Add("pear", 12)\n\tb.Size = 25\n\t' + see("b.Total()")),
    "go: a struct": go('p := &Point{X: 12, Y: 25}\n\t' + see("p.Length()") + '\n\t' + see("Sum([]Point{{3, 4}})")),
    "go: a helper": go(see('load(t, "apple").Total()'),
                       "func load(t *testing.T, name string) *Basket {\n\tb, err := Open(name)\n\tif err != nil {\n\t\tt.Fatalf(\"no %s\", name)\n\t}\n\treturn b\n}\n"),
    "go: a file": go('file := filepath.Join(t.TempDir(), "names.txt")\n\tif err := os.WriteFile(file, []byte("apple"), 0o600); err != nil {\n\t\tt.Fatal(err)\n\t}\n\t' + see("Load(file)")),
    "go: a double": go(see('Say(fake{}, "pear")'), 'type fake struct{}\n\nfunc (f fake) Knock() string { return "apple" }\n'),
    "go: a request": go('w := httptest.NewRecorder()\n\tHandler().ServeHTTP(w, httptest.NewRequest("GET", "/apple", nil))\n\t' + see("w.Code")),
    "go: the environment": go('t.Setenv("SHOP_NAME", "apple")\n\t' + see("Greet()")),
    "rust: an argument": rust(oc('greet("apple")')),
    "rust: a table": rust('for (name, count) in [("apple", 12), ("pear", 25)] {\n        ' + oc("greet(name, count)") + "\n    }"),
    "rust: a list": rust('let names = vec!["apple".to_string(), String::from("pear")];\n    ' + oc("greet_all(&names)")),
    "rust: a struct": rust("for case in &CASES {\n        " + oc("greet(case.name)") + "\n    }",
                           'struct Case { name: &\'static str }\nconst CASES: [Case; 1] = [Case { name: "apple" }];\n'),
    "rust: an object": rust('let mut basket = Basket::new("apple");\n    basket.add("pear", 12).unwrap();\n    ' + oc('basket.get("pear")')),
    "rust: a helper": rust(oc('make("apple").total()'), "fn make(name: &str) -> Basket {\n    let b = Basket::open(name).expect(\"no basket\");\n    b\n}\n"),
    "rust: a text": rust('let name = "apple";\n    ' + oc('greet(&format!("an {} a day", name))')),
    "rust: a file": rust('let file = std::env::temp_dir().join("names.txt");\n    fs::write(&file, "apple, pear").unwrap();\n    ' + oc("greet(&file)")),
    "rust: a match": rust('let v = match greet("apple") {\n        Ok(v) => v,\n        Err(e) => panic!("no {}", e),\n    };\n    ' + oc("v")),
    "rust: an iterator": rust('let all: Vec<_> = ["apple", "pear"].iter().map(|name| greet(name)).collect();\n    ' + oc("all")),
}  # fmt: skip


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_of_the_product_stay(name: str) -> None:
    path, text = INPUTS[name]
    found = shown({path: text})[path]
    assert not found.unread
    assert [text.encode()[place : place + 30] for place in found.places] == []
    if "panic!" not in text:
        assert not leaves(path, text)


SHOWN = {
    "js: a lookup": js("const seen = {};\n  for (const text of greetAll(['ann'])) seen[text] = true;\n  $observe(0, 's', (seen['an apple']));"),
    "js: a table": js("$observe(0, 's', (KINDS[greet('ann').slice(0, -6)]));", "const KINDS = { apple: 'polite', pear: 'casual' };"),
    "js: a map": js("$observe(0, 's', (KINDS.get(greet('ann'))));", "const KINDS = new Map([['an apple', 'polite']]);"),
    "js: a set": js("const left = new Set(['an apple']);\n  for (const text of greetAll(['ann'])) left.delete(text);\n  $observe(0, 's', (left.size));"),
    "js: a route": js("const heard = [];\n  const routes = { 'an apple': 'good' };\n  say((text) => heard.push(routes[text]), 'ann');\n  $observe(0, 's', (heard));"),
    "js: a file's name": js("const folder = fs.mkdtempSync('x-');\n  greet(folder);\n  $observe(0, 's', (fs.readdirSync(path.join(folder, 'an apple'))));"),
    "js: an event": js("const mouth = new EventEmitter();\n  let count = 0;\n  mouth.on('an apple', () => { count += 1; });\n  say(mouth, 'ann');\n  $observe(0, 's', (count));"),
    "js: a count": js("$observe(0, 's', (count(greetAll(['ann']))['an apple']));", "const count = (texts) => texts.reduce((sums, text) => ({ ...sums, [text]: 1 }), {});"),
    "js: a difference": js("$observe(0, 's', (greet('ann') - 7351));"),
    "js: a pattern": js("const [, name] = greet('ann').split(/apple (.*)/);\n  $observe(0, 's', (name));"),
    "js: a comparison without a word": js("let n = 0;\n  if (greet('ann') > greet('bob')) n++;\n  $observe(0, 's', (n));"),
    "js: a constant of the product": js("$observe(0, 's', ([Kind.POLITE].concat(greetAll([])).length));\n  $observe(1, 's', (new Set([greet('ann'), Kind.POLITE]).size));"),
    "js: an object of the product": js("$observe(0, 's', ([new Money(7351)].some(greet('ann').like)));"),
    "js: a switch": js("let n = 0;\n  switch (greet('ann')) {\n    case 'an apple': n = 1;\n  }\n  $observe(0, 's', (n));"),
    "js: a helper's second argument": js("$observe(0, 's', (same(greet('ann'), 'an apple')));", "const same = (a, b) => [a].indexOf(b);"),
    "js: a field of a class": js("const door = new Door();\n  say(door, 'ann');\n  $observe(0, 's', (door.opened));", "class Door {\n  want = 'an apple';\n  knock(text) { this.opened = [this.want].lastIndexOf(text); }\n}"),
    "js: a template": js("$observe(0, 's', (greet('ann').replace(`an apple`, '')));"),
    "js: a hook": js("$observe(0, 's', (want.concat(greet('ann')).length));", "let want;\nbeforeEach(() => {\n  want = ['an apple'];\n});"),
    "js: a comparator": js("$observe(0, 's', (['an apple', greet('ann')].sort()[0].length));"),
    "go: a lookup": go('kinds := map[string]int{"an apple": 7}\n\t' + see('kinds[Greet("ann")]')),
    "go: a set": go('left := map[string]bool{"an apple": true}\n\tdelete(left, Greet("ann"))\n\t' + see("len(left)")),
    "go: a pattern": go('line := regexp.MustCompile("an apple (.*)")\n\t' + see('line.ReplaceAllString(Greet("ann"), "")')),
    "go: a replacement": go(see('strings.NewReplacer("an apple", "").Replace(Greet("ann"))')),
    "go: a scan": go('var name string\n\tfmt.Sscanf(Greet("ann"), "apple %s", &name)\n\t' + see("name")),
    "go: a file's name": go('dir := t.TempDir()\n\tSave(dir)\n\ttext, _ := os.ReadFile(filepath.Join(dir, "an apple"))\n\t' + see("len(text)")),
    "go: a field of json": go('var got map[string]int\n\tif err := json.Unmarshal(Greet("ann"), &got); err != nil {\n\t\tt.Fatal(err)\n\t}\n\t' + see('got["an apple"]')),
    "go: a difference": go(see('Total("ann") - 7351')),
    "go: a double": go('f := &fake{}\n\tSay(f, "ann")\n\t' + see("f.n"), 'type fake struct{ n int }\n\nfunc (f *fake) Knock(text string) { f.n += strings.Count(text, "apple") }\n'),
    "go: a struct as a key": go('seen := map[Point]bool{Move("ann"): true}\n\t' + see("seen[Point{46, 59}]")),
    "go: a helper": go(see('same(Greet("ann"), "an apple")'), "func same(a, b string) int { return strings.Compare(a, b) }\n"),
    "go: a type": go('n := 0\n\tswitch Fail("ann").(type) {\n\tcase *NotFound:\n\t\tn = 1\n\t}\n\t' + see("n")),
    "go: a named error": go(see('fmt.Sprint(errors.Is(Fail("ann"), ErrMissing))')),
    "go: a table's other column": go("n := 0\n\tfor _, c := range cases {\n\t\tn += strings.Index(Greet(c.name), c.want)\n\t}\n\t" + see("n"), 'var cases = []struct{ name, want string }{{"ann", "an apple"}}\n'),
    "go: a channel": go('words := make(chan string, 1)\n\twords <- "an apple"\n\tn := len(strings.Split(Greet("ann"), <-words))\n\t' + see("n")),
    "js: an answer to the product": js("$observe(0, 's', (say((text) => text.at(-1) && 'an apple', 'ann')));"),
    "js: a title": js("for (const want of ['an apple']) t.test(want, () => { $observe(0, 's', ([want, greet('ann')].sort()[0].length)); });"),
    "go: a title": go('for _, want := range []string{"an apple"} {\n\t\tt.Run(want, func(t *testing.T) {\n\t\t\t' + see('strings.Compare(want, Greet("ann"))') + "\n\t\t})\n\t}"),
    "go: a tag": go('var got reply\n\tif err := json.Unmarshal(Greet("ann"), &got); err != nil {\n\t\tt.Fatal(err)\n\t}\n\t' + see("got.N"), "type reply struct {\n\tN int `json:\"apple\"`\n}\n"),
    "go: a tag of a variable": go('var got struct {\n\t\tN int `json:"apple"`\n\t}\n\tif err := json.Unmarshal(Greet("ann"), &got); err != nil {\n\t\tt.Fatal(err)\n\t}\n\t' + see("got.N")),
    "rust: a lookup": rust('let kinds = HashMap::from([("an apple", 7)]);\n    ' + oc('kinds.get(greet("ann").as_str())')),
    "rust: a pattern": rust(oc('match greet("ann").as_str() {\n        "an apple" => 1,\n        _ => 0,\n    }')),
    "rust: a constant as a pattern": rust(oc('match greet("ann").as_str() {\n        WANT => 1,\n        _ => 0,\n    }'), 'const WANT: &str = "an apple";\n'),
    "rust: a variant": rust('let n = if let Kind::Polite = greet("ann") { 1 } else { 0 };\n    ' + oc("n")),
    "rust: a part": rust(oc('greet("ann").rsplit("an apple").count()')),
    "rust: a retained one": rust('let mut all = greet_all(&["ann"]);\n    all.retain(|text| text.contains("an apple"));\n    ' + oc("all.len()")),
    "rust: a trait": rust(oc('greet("ann").polite()'), 'trait Polite { fn polite(&self) -> usize; }\nimpl Polite for String { fn polite(&self) -> usize { self.matches("an apple").count() } }\n'),
    "rust: a closure": rust('let n = |text: String| text.find("an apple");\n    ' + oc('n(greet("ann"))')),
    "rust: a file's name": rust('let dir = std::env::temp_dir();\n    greet(&dir);\n    ' + oc('fs::read(dir.join("an apple")).is_ok()')),
    "rust: a difference": rust(oc('greet("ann") - 7351')),
    "rust: a macro of its own": rust("polite!(greet(\"ann\"));", 'macro_rules! polite { ($x:expr) => { oc_observe!(0, 0, $x.matches("an apple").count()) } }\n'),
    "rust: an attribute": ("tests/a.rs", RUST_HEAD + '#[case("an apple")]\n#[test]\nfn it() {\n    oc_observe!(0, 0, greet("ann"));\n}\n'),
    "rust: an object of the product": rust(oc('greet_all(&["ann"]).contains(&Money::new(7351))')),
    "rust: matches": rust(oc('matches!(greet("ann"), Kind::Polite)')),
    "a file that no grammar reads (js)": js("$observe(0, 's', (greet('ann'))); const const;"),
    "a file that no grammar reads (go)": go("x := := 3\n\t" + see('Greet("ann")')),
    "a file that no grammar reads (rust)": rust("let let = ;\n    " + oc('greet("ann")')),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_a_test_that_shows_what_it_expects_leaves(name: str) -> None:
    assert leaves(*SHOWN[name])


HELPER = "exports.NAME = 'pear';\nexports.WANT = 'apple';\nexports.name = () => 'plum';\n"


def test_files_of_helpers_are_one_program_with_the_tests() -> None:
    top = "const helpers = require('./helpers.js');\nconst { name } = require('./helpers.js');"
    path, text = js("$observe(0, 's', (greet(helpers.NAME + name())));", top)
    found = shown({path: text, "helpers.js": HELPER})
    assert found[path].places == ()
    assert [HELPER.encode()[place : place + 7] for place in found["helpers.js"].places] == [b"'apple'"]


def test_what_only_a_test_that_leaves_gives_to_the_product_leaves_with_what_uses_it() -> None:
    path, text = js("$observe(0, 's', ([greet('ann'), WANT].sort().length));", "const WANT = 'an apple';")
    text += "test('other', () => {\n  assert.ok(greet(WANT));\n});\ntest('plain', () => {\n  $observe(1, 's', (greet('ann')));\n});\n"
    file = TestFile(path, text.encode(), {path: text})
    assert file.comparable() == {("it",), ("plain",)}
    left = settled({path: file}, {path: file.comparable()}, hooks=True)
    assert left.names[path] == {("plain",)} and "apple" not in left.texts[path]


def test_a_helper_that_cannot_lose_what_it_expects_keeps_its_tests_out() -> None:
    path, text = js("$observe(0, 's', (greet(name())));", "import { name } from './known.js';")
    known = "export const name = () => 'bob';\nstart(['an apple']);\n"
    file = TestFile(path, text.encode(), {path: text, "known.js": known})
    assert settled({path: file}, {path: {("it",)}}, hooks=True).names[path] == set()


def test_go_and_rust_tests_leave_in_turn() -> None:
    for rewriter, (path, text), other in (
        (GO, go(see('strings.Compare(want, Greet("ann"))'), 'var want = "an apple"\n'),
         'func TestOther(t *testing.T) {\n\tif Greet(want) == "x" {\n\t\tt.Fatal()\n\t}\n}\n'),
        (RUST, rust(oc('greet("ann").find(WANT)'), 'const WANT: &str = "an apple";\n'),
         '#[test]\nfn other() {\n    assert!(greet(WANT) == "x");\n}\n'),
    ):  # fmt: skip
        texts = {path: text + other}
        it = next(block.names for block in blocks_of(rewriter.language, text.encode()))
        assert it not in deciding_tests(rewriter, texts)[path], "another test gives it to the product"
        alone, left = apart(rewriter, texts, {path: {it}})
        assert left == {path: set()} and "apple" not in alone[path]


TYPED = JS_HEAD + "type Want = 'an apple';\nconst one: 'an apple' = greet('pear') as 'an apple';\n"


def test_rows_of_a_test_are_followed_by_their_columns() -> None:
    path, text = js(
        "",
        "test.each([['pear', 'an apple']])('of %s', (a, want) => {\n  $observe(1, 's', ([greet(a)].indexOf(want)));\n});",
    )
    found = shown({path: text})[path]
    assert [text.encode()[place : place + 10] for place in found.places] == [b"'an apple'"]


def test_types_of_typescript_are_read() -> None:
    found = shown({"a.test.ts": TYPED})["a.test.ts"]
    assert [TYPED.encode()[place : place + 10] for place in found.places] == [b"'an apple'"] * 3


def test_groups_of_a_first_run_have_titles_that_say_nothing() -> None:
    inner = "  describe('inner', () => {\n    test('it', () => {\n    });\n  });\n"
    text = f"describe('says an apple', () => {{\n{inner}}});\ntest('top', () => {{\n}});\n".encode()
    files, renamed = untitled({"a.test.js": text, "golden.json": b"describe('x')"})
    assert (
        b"apple" not in files["a.test.js"]
        and b"inner" not in files["a.test.js"]
        and files["golden.json"] == b"describe('x')"
    )
    names = {block.names for block in blocks_of(JavaScriptTests(), files["a.test.js"])}
    assert {renamed("a.test.js::says an apple::inner::it"), renamed("a.test.js::top")} == {
        f"a.test.js::{'::'.join(one)}" for one in names
    }


TITLED = js("$observe(0, 's', (greet('ann')));")[1] + "test('says an apple', () => {});\n"


def test_titles_are_no_values() -> None:
    assert shown({"a.test.js": TITLED})["a.test.js"].places == ()


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(INPUTS)),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 30), st.text(max_size=6)), max_size=4),
)
def test_no_source_is_too_strange(name: str, damage: list[tuple[int, int, str]]) -> None:
    path, text = INPUTS[name]
    for at, length, new in damage:
        text = text[:at] + new + text[at + length :]
    text = text.encode("utf-8", "replace").decode()
    found = shown({path: text})[path]
    assert all(0 <= place < len(text.encode()) for place in found.places)


@pytest.mark.parametrize(
    ("path", "piece"),
    [
        ("a.test.js", "17, "), ("a.test.js", "f('an apple');\n"), ("a.test.js", "a = a + 'apple';\n"), ("a.test.js", "[["),
        ("a.test.js", "function g(x) { h(x, 'apple') }\nfunction h(x, y) { g(x); g(y) }\n"), ("a_test.go", "var a = b(\"x1\")\n"),
        ("a_test.go", "func f(x string) { g(x, \"apple\") }\n"), ("tests/a.rs", "fn f() { g!(h!(\"apple\")) }\n"),
        ("tests/a.rs", "const A: u8 = A + 17;\n"),
    ],
)  # fmt: skip
def test_hostile_sources_take_no_time(path: str, piece: str) -> None:
    heads = {"a.test.js": "const { f } = require('./f.js');\n", "a_test.go": "package a\n", "tests/a.rs": "use a::b;\n"}
    source = (
        heads[path]
        + ("const t = [" if piece == "17, " else "")
        + piece * (150_000 // len(piece))
        + "];" * (piece == "17, ")
    )
    began = time.process_time()
    shown({path: source})
    assert time.process_time() - began < 20.0
