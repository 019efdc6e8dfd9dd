"""The order of semantic versions (semver.org 2.0.0, item 11), as npm and Go use them."""

from __future__ import annotations

import re

_VERSION = re.compile(
    r"(0|[1-9][0-9]{0,15})\.(0|[1-9][0-9]{0,15})\.(0|[1-9][0-9]{0,15})"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)

Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


class BadVersion(ValueError):
    """Not a semantic version."""


def precedence(version: str) -> Precedence:
    """A key that sorts as versions do; build metadata does not count. Raises BadVersion."""
    found = _VERSION.fullmatch(version)
    if found is None or len(version) > 256:
        raise BadVersion(f"{version[:256]!r} is not a semantic version")
    major, minor, patch, pre = found.groups()
    parts = tuple(
        (not part.isdigit(), int(part) if part.isdigit() else 0, "" if part.isdigit() else part)
        for part in (pre.split(".") if pre else ())
    )
    return int(major), int(minor), int(patch), pre is None, parts
