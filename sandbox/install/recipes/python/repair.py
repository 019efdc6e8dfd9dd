"""Map the error of a failed import or unknown fixture to the packages that it needs."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
MAX_REPAIRS = 8
"""Packages that one round of repairs adds at most."""
_ERRORS = (
    re.compile(r"No module named '?([A-Za-z_][\w.]*)'?"),
    re.compile(
        r"(?:requires|needs|install) (?:the )?[`'\"]?([A-Za-z][\w.-]*)[`'\"]? "
        r"(?:package|module|library)? ?(?:to be installed|is required)"
    ),
)
_ATTRIBUTE = re.compile(r"module '(\w+)' has no attribute")
_GONE = (
    re.compile(r"cannot import name '[^']+' from (?:partially initialized module )?'(\w+)[\w.]*' \(\S*site-packages"),
    re.compile(r"AttributeError: module '(\w+)[\w.]*' has no attribute"),
    re.compile(r"No module named '(\w+)\.[\w.]+'"),
)
"""Something that a package no longer has: an older one had it."""
_FIXTURE = re.compile(r"fixture '([A-Za-z_]\w*)' not found")
_ASYNC = re.compile(r"async def functions are not natively supported|Unknown pytest\.mark\.asyncio")
_MARKS = {"django_db": "pytest-django", "timeout": "pytest-timeout", "anyio": "anyio", "trio": "pytest-trio"}


@cache
def known() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """(module → package, fixture → plugin, module of which only a stand-in is there → package)."""
    table = tomllib.loads((HERE / "modules.toml").read_text(encoding="utf-8"))
    return table["packages"], table["fixtures"], table["shims"]


def missing(texts: Iterable[str], own: Iterable[str], imported: frozenset[str] | None = None) -> list[str]:
    """Requirements that would answer the errors in `texts`. `own` are modules that the checkout itself should have.

    With `imported` (top-level modules that its files import), names that nobody imports are made up by tests, and are not
    asked an index for; what an installed package fails to import is.
    """
    packages, fixtures, shims = known()
    mine = {name.lower() for name in own} | {
        "tests",
        "test",
        "testing",
        "conftest",
        "setup",
        "utils",
        "helpers",
        "common",
    }
    found: dict[str, None] = {}
    for text in texts:
        for expression in _ERRORS:
            for match in expression.finditer(text):
                module = match[1]
                top = module.split(".")[0]
                wanted = packages.get(module, packages.get(top, top.replace("_", "-")))
                meant = imported is None or top in imported or top in packages or "site-packages" in text
                if meant and wanted and top.lower() not in mine and not top.startswith("_"):
                    found[wanted] = None
        found |= {shims[m[1]]: None for m in _ATTRIBUTE.finditer(text) if m[1] in shims}
        for match in _FIXTURE.finditer(text):
            if plugin := fixtures.get(match[1], ""):
                found[plugin] = None
        if _ASYNC.search(text):
            found["pytest-asyncio"] = None
        for mark, plugin in _MARKS.items():
            if f"Unknown pytest.mark.{mark} " in text:
                found[plugin] = None
    return list(found)[:MAX_REPAIRS]


def outgrown(texts: Iterable[str], own: Iterable[str]) -> list[str]:
    """Modules of which a failed test misses a part that earlier releases had. `own` are the checkout's."""
    mine = {name.lower() for name in own} | {"tests", "test"}
    found = {m[1]: None for text in texts for sign in _GONE for m in sign.finditer(text)}
    standard = sys.stdlib_module_names
    return [name for name in found if name.lower() not in mine and name not in standard][:MAX_REPAIRS]


def build_bounds(said: str) -> list[str]:
    """Bounds on build tools that answer a failed build: something that their newest releases no longer have."""
    table = tomllib.loads((HERE / "eras.toml").read_text(encoding="utf-8"))
    return list(dict.fromkeys(row["bound"] for row in table["build"] if re.search(row["sign"], said)))


def build_requirements(said: str, own: Iterable[str]) -> list[str]:
    """Packages that a failed build misses."""
    return missing([said], own)


def era_constraints(year: int | None) -> list[str]:
    """Upper bounds on packages whose later releases broke what was written up to `year`."""
    if year is None:
        return []
    table = tomllib.loads((HERE / "eras.toml").read_text(encoding="utf-8"))
    bounds: dict[str, tuple[int, str]] = {}
    for release in table["release"]:
        name = re.split(r"[<>=]", release["below"])[0]
        if year < release["year"] and (name not in bounds or release["year"] < bounds[name][0]):
            bounds[name] = (release["year"], release["below"])
    return sorted(below for _, below in bounds.values())
