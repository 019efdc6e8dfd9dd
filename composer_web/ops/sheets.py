"""Cells of CSV files that people open in a spreadsheet."""

from __future__ import annotations

import json
from typing import Any


def cell(value: Any) -> Any:
    """Spreadsheets run what begins like a formula, and a policy, a repository or a user name may have written it."""
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
