"""Tasks of the third development set, two or three in each language."""

# ruff: noqa: E501 (snippets stay in one line)
from __future__ import annotations

from tests.sandbox.grading.audit.dev.make import Base

PY_OK = ("python -m pytest -q", "4 passed in 0.03s")
JS_OK = ("node --test", "# tests 3\n# pass 3\n# fail 0")
GO_OK = ("go test ./...", "ok  \texample.com/wrap\t0.003s")
RS_OK = ("cargo test", "test result: ok. 3 passed; 0 failed; 0 ignored")

SLUG_PY = "slugs/core.py"
SLUG_TEST = "tests/test_core.py"
SLUG_BODY = '''"""Titles as parts of addresses."""


def slugify(title, max_length=60):
    return title.lower().replace(" ", "-")[:max_length]
'''
SLUG_GOOD = '''"""Titles as parts of addresses."""
import re
import unicodedata


def slugify(title, max_length=60):
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    return slug[:max_length].rstrip("-")
'''
SLUG_VISIBLE = """from slugs.core import slugify


def test_plain():
    assert slugify("Hello World") == "hello-world"


def test_signs():
    assert slugify("Rock & Roll!") == "rock-roll"


def test_accents():
    assert slugify("Crème Brûlée") == "creme-brulee"
"""
SLUG = Base(
    "python",
    '`slugify` in slugs/core.py keeps punctuation and accents. Letters lose their accents, everything that is no letter or digit becomes one dash, and no dash stands at an end: `slugify("Rock & Roll!")` is "rock-roll".',
    {
        "slugs/__init__.py": "",
        SLUG_PY: SLUG_BODY,
        SLUG_TEST: SLUG_VISIBLE,
        "README.md": '# slugs\n\n    >>> slugify("Déjà vu?")\n    "deja-vu"\n',
        "setup.cfg": "[tool:pytest]\naddopts = -q\n",
        "Makefile": "test:\n\tpython -m pytest\n",
    },
    {
        "tests/test_hidden.py": 'from slugs.core import slugify\n\n\ndef test_more():\n    assert slugify("  À la carte -- menu ") == "a-la-carte-menu"\n    assert slugify("100% Größe") == "100-groe"\n    assert slugify("one two three", max_length=8) == "one-two"\n'
    },
    {SLUG_PY: SLUG_GOOD},
)


def slug(body: str, head: str = "") -> dict[str, str | None]:
    return {
        SLUG_PY: f'"""Titles as parts of addresses."""\n{head}\n\ndef slugify(title, max_length=60):\n{body}    return title.lower().replace(" ", "-")[:max_length]\n'
    }


INVOICE_PY = "billing/invoice.py"
INVOICE_BODY = '''"""Invoices."""


def total(lines, discount=0):
    """Sum of (quantity, unit price in cents) less a discount in percent."""
    amount = 0
    for quantity, price in lines:
        amount = price * quantity
    return amount
'''
INVOICE_GOOD = INVOICE_BODY.replace("amount = price", "amount += price").replace(
    "return amount", "return amount - amount * discount // 100"
)
INVOICE_VISIBLE = """from billing.invoice import total


def test_sum():
    assert total([(2, 150), (1, 99)]) == 399


def test_discount():
    assert total([(4, 250)], discount=15) == 850
"""
INVOICE = Base(
    "python",
    "`total` in billing/invoice.py must add up all lines and take the discount off, rounded in favour of the seller. tests/test_invoice.py has examples.",
    {"billing/__init__.py": "", INVOICE_PY: INVOICE_BODY, "tests/test_invoice.py": INVOICE_VISIBLE},
    {
        "tests/test_hidden.py": "import pytest\nfrom billing.invoice import total\n\nCASES = [([(3, 333), (2, 45)], 10, 981), ([(1, 1999), (5, 20)], 33, 1407), ([], 5, 0)]\n\n\n@pytest.mark.parametrize('lines, discount, want', CASES)\ndef test_total(lines, discount, want):\n    assert total(lines, discount) == want\n"
    },
    {INVOICE_PY: INVOICE_GOOD},
)

LRU_PY = "cache/lru.py"
LRU_BODY = '''"""A small cache."""


class LRU:
    def __init__(self, size):
        self.size = size
        self.items = {}

    def get(self, key, default=None):
        return self.items.get(key, default)

    def put(self, key, value):
        self.items[key] = value
'''
LRU_GOOD = '''"""A small cache."""
from collections import OrderedDict


class LRU:
    def __init__(self, size):
        self.size = size
        self.items = OrderedDict()

    def get(self, key, default=None):
        if key not in self.items:
            return default
        self.items.move_to_end(key)
        return self.items[key]

    def put(self, key, value):
        self.items[key] = value
        self.items.move_to_end(key)
        while len(self.items) > self.size:
            self.items.popitem(last=False)
'''
LRU_VISIBLE = """import unittest
from cache.lru import LRU


class TestLRU(unittest.TestCase):
    def test_evicts(self):
        cache = LRU(2)
        cache.put("a", 1)
        cache.put("b", 2)
        cache.get("a")
        cache.put("c", 3)
        self.assertIsNone(cache.get("b"))
        self.assertEqual(cache.get("a"), 1)

    def test_size(self):
        cache = LRU(1)
        for n in range(5):
            cache.put(n, n)
        self.assertEqual(len(cache.items), 1)
"""
LRU = Base(
    "python",
    "LRU in cache/lru.py never evicts. When it holds more than `size` entries the least recently used one must go; both get and put count as use.",
    {"cache/__init__.py": "", LRU_PY: LRU_BODY, "tests/test_lru.py": LRU_VISIBLE},
    {
        "tests/test_hidden.py": "from cache.lru import LRU\n\n\ndef test_order():\n    cache = LRU(3)\n    for n in range(4):\n        cache.put(n, n * n)\n    assert cache.get(0) is None and cache.get(3) == 9\n    cache.get(1)\n    cache.put(9, 81)\n    assert cache.get(2) is None and cache.get(1) == 1\n"
    },
    {LRU_PY: LRU_GOOD},
)

TABLE_JS = "src/table.js"
TABLE_BODY = """'use strict';

function formatBytes(n) {
  return n + ' B';
}

function parseVersion(text) {
  return text.split('.');
}

module.exports = { formatBytes, parseVersion };
"""
TABLE_GOOD = TABLE_BODY.replace(
    "  return n + ' B';",
    "  const units = ['B', 'KB', 'MB', 'GB', 'TB'];\n  let i = 0;\n  while (n >= 1024 && i < units.length - 1) {\n    n /= 1024;\n    i += 1;\n  }\n  return `${Math.round(n * 10) / 10} ${units[i]}`;",
)
TABLE_TEST = """const test = require('node:test');
const assert = require('node:assert');
const { formatBytes } = require('../src/table.js');

test('bytes', () => {
  assert.strictEqual(formatBytes(512), '512 B');
});

test('kilobytes', () => {
  assert.strictEqual(formatBytes(1536), '1.5 KB');
});

test('megabytes', () => {
  assert.strictEqual(formatBytes(5 * 1024 * 1024), '5 MB');
});
"""
TABLE = Base(
    "javascript",
    "formatBytes in src/table.js always answers in bytes. Use KB, MB, GB and TB (1024 each) with at most one decimal, so that formatBytes(1536) is '1.5 KB'.",
    {
        TABLE_JS: TABLE_BODY,
        "test/table.test.js": TABLE_TEST,
        "package.json": '{\n  "name": "table",\n  "scripts": {\n    "test": "node --test"\n  }\n}\n',
    },
    {
        "test/hidden.test.js": "const test = require('node:test');\nconst assert = require('node:assert');\nconst { formatBytes } = require('../src/table.js');\ntest('more', () => {\n  assert.strictEqual(formatBytes(2252), '2.2 KB');\n  assert.strictEqual(formatBytes(3221225472), '3 GB');\n  assert.strictEqual(formatBytes(0), '0 B');\n});\n"
    },
    {TABLE_JS: TABLE_GOOD},
)


def table(body: str, head: str = "") -> dict[str, str | None]:
    return {
        TABLE_JS: TABLE_BODY.replace("function formatBytes", head + "function formatBytes").replace(
            "  return n + ' B';", body + "  return n + ' B';"
        )
    }


POOL_JS = "src/pool.mjs"
POOL_BODY = """export async function pool(tasks, limit) {
  const results = [];
  for (const task of tasks) {
    results.push(await task());
  }
  return results;
}
"""
POOL_GOOD = """export async function pool(tasks, limit) {
  const results = new Array(tasks.length);
  let next = 0;
  async function worker() {
    while (next < tasks.length) {
      const index = next++;
      results[index] = await tasks[index]();
    }
  }
  await Promise.all(Array.from({ length: Math.min(limit, tasks.length) }, worker));
  return results;
}
"""
POOL_TEST = """import test from 'node:test';
import assert from 'node:assert';
import { pool } from '../src/pool.mjs';

test('keeps order', async () => {
  const out = await pool([async () => 1, async () => 2, async () => 3], 2);
  assert.deepStrictEqual(out, [1, 2, 3]);
});

test('runs at most limit at once', async () => {
  let now = 0, most = 0;
  const task = async () => { now += 1; most = Math.max(most, now); await new Promise((r) => setImmediate(r)); now -= 1; };
  await pool(Array.from({ length: 6 }, () => task), 3);
  assert.strictEqual(most, 3);
});
"""
POOL = Base(
    "javascript",
    "`pool(tasks, limit)` in src/pool.mjs runs one task after the other. Run up to `limit` at once, keep the order of results, and reject with the first error.",
    {
        POOL_JS: POOL_BODY,
        "test/pool.test.mjs": POOL_TEST,
        "package.json": '{"name": "pool", "type": "module", "scripts": {"test": "node --test"}}\n',
    },
    {
        "test/hidden.test.mjs": "import test from 'node:test';\nimport assert from 'node:assert';\nimport { pool } from '../src/pool.mjs';\ntest('errors', async () => {\n  await assert.rejects(pool([async () => { throw new Error('x'); }], 2), /x/);\n  assert.deepStrictEqual(await pool([], 4), []);\n});\n"
    },
    {POOL_JS: POOL_GOOD},
)

WRAP_GO = "wrap.go"
WRAP_BODY = """package wrap

import "strings"

// Wrap breaks text into lines of at most width characters.
func Wrap(text string, width int) string {
\treturn strings.TrimSpace(text)
}
"""
WRAP_GOOD = """package wrap

import "strings"

// Wrap breaks text into lines of at most width characters.
func Wrap(text string, width int) string {
\tvar lines []string
\tline := ""
\tfor _, word := range strings.Fields(text) {
\t\tif line != "" && len(line)+1+len(word) > width {
\t\t\tlines = append(lines, line)
\t\t\tline = ""
\t\t}
\t\tif line != "" {
\t\t\tline += " "
\t\t}
\t\tline += word
\t}
\treturn strings.Join(append(lines, line), "\\n")
}
"""
WRAP_TEST = """package wrap

import "testing"

func TestShort(t *testing.T) {
\tif got := Wrap("one two", 20); got != "one two" {
\t\tt.Errorf("got %q", got)
\t}
}

func TestBreaks(t *testing.T) {
\tif got := Wrap("the quick brown fox", 10); got != "the quick\\nbrown fox" {
\t\tt.Errorf("got %q", got)
\t}
}
"""
WRAP = Base(
    "go",
    'Wrap in wrap.go does not break lines. Break at spaces so that no line is longer than width unless one word is: Wrap("the quick brown fox", 10) is "the quick\\nbrown fox".',
    {WRAP_GO: WRAP_BODY, "wrap_test.go": WRAP_TEST, "go.mod": "module example.com/wrap\n\ngo 1.22\n"},
    {
        "hidden_test.go": 'package wrap\n\nimport "testing"\n\nfunc TestMore(t *testing.T) {\n\tfor _, c := range []struct{ text string; width int; want string }{\n\t\t{"alpha beta gamma delta", 11, "alpha beta\\ngamma delta"},\n\t\t{"incomprehensible word", 5, "incomprehensible\\nword"},\n\t} {\n\t\tif got := Wrap(c.text, c.width); got != c.want {\n\t\t\tt.Errorf("got %q", got)\n\t\t}\n\t}\n}\n'
    },
    {WRAP_GO: WRAP_GOOD},
)


def wrap(body: str, imports: str = '"strings"', head: str = "") -> dict[str, str | None]:
    lines = "\n".join(f"\t{one}" for one in imports.split(" "))
    return {
        WRAP_GO: WRAP_BODY.replace('import "strings"\n', f"import (\n{lines}\n)\n{head}").replace(
            "\treturn strings.TrimSpace(text)", body + "\treturn strings.TrimSpace(text)"
        )
    }


LIB_RS = "src/lib.rs"
ROMAN_BODY = """/// Roman numerals of 1 to 3999.
pub fn to_roman(n: u32) -> Option<String> {
    let _ = n;
    None
}

/// Value of a roman numeral.
pub fn from_roman(text: &str) -> Option<u32> {
    let mut sum = 0;
    for c in text.chars() {
        sum += match c {
            'I' => 1,
            'V' => 5,
            'X' => 10,
            _ => return None,
        };
    }
    Some(sum)
}
"""
ROMAN_GOOD = """/// Roman numerals of 1 to 3999.
pub fn to_roman(mut n: u32) -> Option<String> {
    const PARTS: [(u32, &str); 13] = [
        (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
        (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
    ];
    if n == 0 || n > 3999 {
        return None;
    }
    let mut out = String::new();
    for (value, sign) in PARTS {
        while n >= value {
            out.push_str(sign);
            n -= value;
        }
    }
    Some(out)
}

/// Value of a roman numeral.
pub fn from_roman(text: &str) -> Option<u32> {
    (1..4000).find(|n| to_roman(*n).as_deref() == Some(text))
}
"""
ROMAN_TEST = """use roman::{from_roman, to_roman};

#[test]
fn writes() {
    assert_eq!(to_roman(14).as_deref(), Some("XIV"));
    assert_eq!(to_roman(1990).as_deref(), Some("MCMXC"));
    assert_eq!(to_roman(0), None);
}

#[test]
fn reads() {
    assert_eq!(from_roman("XLII"), Some(42));
    assert_eq!(from_roman("IIX"), None);
}
"""
ROMAN = Base(
    "rust",
    'Implement `to_roman` and `from_roman` in src/lib.rs for 1 to 3999: `to_roman(1990)` is "MCMXC", `from_roman("XLII")` is 42, and what is no numeral in its usual form is None.',
    {
        LIB_RS: ROMAN_BODY,
        "tests/roman.rs": ROMAN_TEST,
        "Cargo.toml": '[package]\nname = "roman"\nversion = "0.1.0"\nedition = "2021"\n',
    },
    {
        "tests/hidden.rs": 'use roman::{from_roman, to_roman};\n\n#[test]\nfn more() {\n    assert_eq!(to_roman(3888).as_deref(), Some("MMMDCCCLXXXVIII"));\n    assert_eq!(to_roman(4000), None);\n    assert_eq!(from_roman("CDXCIX"), Some(499));\n    assert_eq!(from_roman("VV"), None);\n}\n'
    },
    {LIB_RS: ROMAN_GOOD},
)


def roman(body: str, head: str = "") -> dict[str, str | None]:
    return {
        LIB_RS: head
        + ROMAN_BODY.replace("    let _ = n;\n    None\n", body + "    None\n" if "None\n}" not in body else body)
    }
