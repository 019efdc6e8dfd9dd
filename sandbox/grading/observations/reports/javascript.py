"""`==` of JavaScript over texts that tell values (`runners/observe.js`), for `assert.equal` and the parts of `assert.deepEqual`.

Only primitive values are compared loosely. An object never equals a primitive here, although its `toString` may say so.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, InvalidOperation

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-\w.+$]+|.', re.DOTALL)
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
WHOLE = re.compile(r"[+-]?\d{1,4000}")
RADIX = re.compile(r"0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")
BIG = re.compile(r"-?\d{1,4000}n")
SPACE = " \t\n\v\f\r\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
MAX_DIGITS = 4000

Primitive = str | Decimal | float | None


def loosely(a: str, b: str) -> bool:
    """Whether two told values are equal, each primitive part of them as `==` says, and as Node adds: NaN equals itself."""
    if a == b:
        return True
    here, there = (TOKEN.findall(side) for side in (a, b))
    return len(here) == len(there) and all(map(_same, here, there))


def _same(a: str, b: str) -> bool:
    if a == b:
        return True
    try:
        here, there = (_value(token) for token in (a, b))
    except (LookupError, ValueError):
        return False
    if here is None or there is None or (isinstance(here, str) and isinstance(there, str)):
        return here == there
    number = _integer if BIG.fullmatch(a) or BIG.fullmatch(b) else _number
    left, right = (number(side) if isinstance(side, str) else side for side in (here, there))
    return left == right


def _value(token: str) -> Primitive:
    """Raises LookupError for what tells no primitive value, ValueError for a text that is none."""
    if token.startswith('"'):
        return str(json.loads(token))
    if token in ("null", "undefined"):
        return None
    if token in ("true", "false"):
        return Decimal(token == "true")
    if BIG.fullmatch(token):
        return Decimal(token[:-1])
    found = _number(token)
    if isinstance(found, float) and math.isnan(found):
        raise LookupError(token)  # also NaN: it is equal to itself alone, as a text
    return found


def _number(text: str) -> Decimal | float:
    """`Number(text)`, exactly."""
    text = text.strip(SPACE)
    if len(text) > MAX_DIGITS:
        return math.nan
    if RADIX.fullmatch(text):
        return Decimal(int(text, 0))
    if text in ("Infinity", "+Infinity", "-Infinity"):
        return float(text)
    if not text:
        return Decimal(0)
    try:
        found = Decimal(text) if NUMBER.fullmatch(text) else None
    except InvalidOperation:
        found = None
    return math.nan if found is None else _rounded(found)


def _integer(text: str) -> Decimal | float:
    """`BigInt(text)`, NaN where it raises."""
    text = text.strip(SPACE)
    return _number(text) if not text or RADIX.fullmatch(text) else Decimal(text) if WHOLE.fullmatch(text) else math.nan


def _rounded(number: Decimal) -> Decimal | float:
    """The double that JavaScript keeps: texts with more digits than it holds equal it."""
    try:
        found = float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
    return found if math.isinf(found) else Decimal(found)
