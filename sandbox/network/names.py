"""Normalise package names as each kind of registry does. Malformed names are refused, not repaired."""

from __future__ import annotations

import re

from packaging.utils import InvalidName, canonicalize_name

MAX_NAME = 214
_NPM = re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*", re.ASCII)
_CARGO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
_GO_ELEMENT = re.compile(r"[A-Za-z0-9_~-](?:[A-Za-z0-9._~-]*[A-Za-z0-9_~-])?", re.ASCII)
_GO_MAJOR = re.compile(r"/v[2-9][0-9]*$|/v1[0-9]+$|\.v[0-9]+(?:-unstable)?$")
"""As paths end from the second major version on; the last form is gopkg.in's."""


class BadName(ValueError):
    """Not a name that the registry could hold."""


def python_name(name: str) -> str:
    """PEP 503: lower case, runs of `-`, `_` and `.` become one `-`. Raises BadName."""
    if len(name) > MAX_NAME:
        raise BadName(f"package name of {len(name)} characters")
    try:
        return canonicalize_name(name, validate=True)
    except InvalidName:
        raise BadName(f"{name!r} is not the name of a Python package") from None


def npm_name(name: str) -> str:
    """`name` or `@scope/name`, lower case (registries compare so; only relics differ). Raises BadName."""
    lowered = name.lower()
    if len(name) > MAX_NAME or not _NPM.fullmatch(lowered):
        raise BadName(f"{name[:MAX_NAME]!r} is not the name of an npm package")
    return lowered


def cargo_name(name: str) -> str:
    """Lower case, `_` as `-`: crates that differ in no more are one. Raises BadName."""
    if not _CARGO.fullmatch(name):
        raise BadName(f"{name[:MAX_NAME]!r} is not the name of a crate")
    return name.lower().replace("_", "-")


def cargo_path(name: str) -> str:
    """Where a sparse index keeps a crate: `1/a`, `2/ab`, `3/a/abc`, `se/rd/serde`."""
    if len(name) < 3:
        return f"{len(name)}/{name}"
    return f"3/{name[0]}/{name}" if len(name) == 3 else f"{name[:2]}/{name[2:4]}/{name}"


def go_module(path: str) -> str:
    """A module's path without its major version, lower case: `example.org/M/v2` is `example.org/m`. Raises BadName."""
    elements = path.split("/")
    if len(path) > MAX_NAME or "." not in elements[0]:
        raise BadName(f"{path[:MAX_NAME]!r} is not the path of a Go module")
    for element in elements:
        if not _GO_ELEMENT.fullmatch(element):
            raise BadName(f"{path!r} is not the path of a Go module")
    while (shorter := _GO_MAJOR.sub("", path)) not in (path, ""):
        path = shorter
    return path.lower()


def go_unescape(path: str) -> str:
    """The module path or version that a Go proxy's URL means: `!x` stands for `X`. Raises BadName."""
    if re.search(r"[A-Z]|![^a-z]|!$", path):
        raise BadName(f"{path!r} is not escaped as the Go proxy protocol wants it")
    return re.sub(r"!([a-z])", lambda match: match.group(1).upper(), path)
