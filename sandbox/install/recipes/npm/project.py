"""Read a package.json: its test framework, test locations and entry points."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any, Literal

from sandbox.repositories.checkout import Checkout

Framework = Literal["vitest", "jest", "mocha", "node"]
CODE = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
SKIPPED = frozenset(
    ("node_modules", "dist", "build", "fixtures", "__fixtures__", "__snapshots__", "coverage", "vendor")
)
_BY_WORD: tuple[tuple[str, Framework], ...] = (
    (r"\bvitest\b", "vitest"), (r"\bjest\b|react-scripts test", "jest"), (r"\bmocha\b", "mocha"),
    (r"\bnode\b.*--test\b", "node"),
)  # fmt: skip


def manifest(checkout: Checkout) -> dict[str, Any]:
    """package.json; empty where it cannot be read."""
    try:
        found = json.loads(checkout.text("package.json"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def scripts(checkout: Checkout) -> dict[str, str]:
    found = manifest(checkout).get("scripts")
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


def dependencies(checkout: Checkout) -> dict[str, str]:
    """Every package that the manifest names, of whatever kind."""
    found: dict[str, str] = {}
    for kind in ("dependencies", "devDependencies", "optionalDependencies"):
        table = manifest(checkout).get(kind)
        found |= {k: v for k, v in table.items() if isinstance(v, str)} if isinstance(table, dict) else {}
    return found


def framework(checkout: Checkout) -> Framework | None:
    """By the test script, what it calls, what is depended on, or what the tests themselves import."""
    said = scripts(checkout)
    words = [said.get("test", ""), *(text for name, text in said.items() if name.startswith(("test:", "unit")))]
    for text in words:
        for sign, name in _BY_WORD:
            if re.search(sign, text):
                return name
    for name in ("vitest", "jest", "mocha"):
        if name in dependencies(checkout):
            return name
    return "node" if _runner_files(checkout) else None


def test_files(checkout: Checkout, framework: Framework) -> tuple[str, ...]:
    """Files that the framework would run by its own defaults, `node_modules` and products apart."""
    if framework == "node":
        return tuple(_runner_files(checkout))
    return tuple(sorted(path for path in checkout.files if _is_test(path, framework)))


def entry(checkout: Checkout) -> str:
    """The module that others would load, when it is in the checkout as it is."""
    found = manifest(checkout)
    for name in (found.get("main"), found.get("module"), "index.js", "index.mjs", "index.cjs"):
        if isinstance(name, str):
            path = str(PurePosixPath(name))
            for candidate in (path, f"{path}.js", f"{path}/index.js"):
                if candidate in checkout.files:
                    return candidate
    return ""


def plain_files(checkout: Checkout) -> list[str]:
    """JavaScript that node can check as it is, shortest paths first."""
    found = [p for p in checkout.files if p.endswith((".js", ".cjs", ".mjs")) and not SKIPPED & set(p.split("/"))]
    return sorted(found, key=lambda path: (path.count("/"), path))


def _runner_files(checkout: Checkout) -> list[str]:
    """Files written for node's own runner."""
    return sorted(
        path for path in checkout.files
        if path.endswith((".js", ".mjs", ".cjs")) and not SKIPPED & set(path.split("/"))
        and re.search(r"""(?:require\(|from\s*)['"]node:test['"]""", checkout.text(path))
    )  # fmt: skip


def _is_test(path: str, framework: Framework) -> bool:
    pure = PurePosixPath(path)
    if pure.suffix not in CODE or SKIPPED & set(pure.parts) or path.endswith(".d.ts"):
        return False
    if framework == "mocha":
        return pure.parts[0] in ("test", "tests", "spec") or bool(re.search(r"\.(?:test|spec)\.", pure.name))
    inside = framework == "jest" and "__tests__" in pure.parts[:-1]
    return inside or bool(re.search(r"\.(?:test|spec)\.[cm]?[jt]sx?$", pure.name))
