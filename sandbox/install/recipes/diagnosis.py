"""Map the output of a failed build or test to a named reason and to the missing system package."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from sandbox.install.recipes.errors import Reason

UNKNOWN = "that has "
"""Begins what is known of a package whose name is not."""
TABLES = Path(__file__).with_name("diagnosis.toml")
_HEADER = re.compile(
    r"fatal error: ([\w./+-]+\.h\w*): No such file|cannot find -l(\w+)|(\S+\.so[.\d]*): cannot open shared object"
)
_LIBRARY = re.compile(
    r"No package '([\w.+-]+)' found|Package ([\w.+-]+) was not found in the pkg-config"
    r"|Dependency \"?([\w.+-]+)\"? not found|Could NOT find (\w+)",
    re.IGNORECASE,
)
_PROGRAM = re.compile(
    r"(?:unable to execute '|command '|No such file or directory: '|can't find |could not find |Unable to find |error: )"
    r"([\w+-]+?)'?(?: failed: No such| executable not found|: command not found|: not found|$|'| not found)",
    re.MULTILINE | re.IGNORECASE,
)


@cache
def _tables() -> dict[str, dict[str, Any]]:
    return tomllib.loads(TABLES.read_text(encoding="utf-8"))


@cache
def _signs(table: str) -> tuple[tuple[Reason, re.Pattern[str]], ...]:
    flags = re.IGNORECASE | re.DOTALL
    return tuple((Reason(name), re.compile("|".join(parts), flags)) for name, parts in _tables()[table].items())


def system_packages(text: str) -> list[str]:
    """The Debian packages that a build misses, in the order in which it names them; `that has …` for an unknown one."""
    found: dict[str, None] = {}
    for match in _HEADER.finditer(text):
        thing = next(filter(None, match.groups()))
        known = (str(package) for sign, package in _tables()["system"].items() if sign in thing or thing in sign)
        found[next(known, f"{UNKNOWN}{thing}")] = None
    for match in _PROGRAM.finditer(text):
        if package := _tables()["programs"].get(match[1]):
            found[str(package)] = None
    for match in _LIBRARY.finditer(text):
        name = next(filter(None, match.groups()))
        if package := _tables()["pkgconfig"].get(name.lower()):
            found[str(package)] = None
    return list(found)


def system_package(text: str) -> str:
    """The first of them; empty when the text names none."""
    return next(iter(system_packages(text)), "")


def remedy(package: str) -> str:
    """What the person who runs this machine is to do, in one line with the command; empty for no package."""
    if package.startswith(UNKNOWN):
        return f"Install the system package {package} on this machine (`apt-file search` names it)"
    return f"Install the system package {package} on this machine: apt-get install -y {package}" if package else ""


def of_build(text: str) -> Reason:
    """Why an installation failed."""
    if system_package(text):
        return Reason.SYSTEM_PACKAGE
    return next((reason for reason, sign in _signs("build") if sign.search(text)), Reason.INSTALL)


def of_tests(messages: Iterable[str]) -> Reason:
    """Why most failing tests fail: the reason that at least half of their messages show."""
    counts: Counter[Reason] = Counter()
    total = 0
    for message in messages:
        total += 1
        found = next((reason for reason, sign in _signs("tests") if sign.search(message)), Reason.FAILING_TESTS)
        counts[found] += 1
    reason, count = counts.most_common(1)[0] if counts else (Reason.FAILING_TESTS, 0)
    return reason if 2 * count >= total else Reason.FAILING_TESTS
