"""From the words of a failed build or test to a named reason, and to the system package that is missing."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from sandbox.install.errors import Reason

UNKNOWN = "that has "
"""Begins what is known of a package whose name is not."""
TABLES = Path(__file__).with_name("diagnosis.toml")
_HEADER = re.compile(
    r"fatal error: ([\w./+-]+\.h\w*): No such file|cannot find -l(\w+)|(\S+\.so[.\d]*): cannot open shared object"
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


def system_package(text: str) -> str:
    """The Debian package that a build misses; empty when the text names none."""
    for match in _HEADER.finditer(text):
        thing = next(filter(None, match.groups()))
        for sign, package in _tables()["system"].items():
            if sign in thing or thing in sign:
                return str(package)
        return f"{UNKNOWN}{thing}"
    for match in _PROGRAM.finditer(text):
        if package := _tables()["programs"].get(match[1]):
            return str(package)
    return ""


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
