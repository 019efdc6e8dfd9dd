"""Parse the target of a request. A target that does not match a known form exactly is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from sandbox.network.names import BadName, cargo_name, cargo_path, go_module, go_unescape, npm_name, python_name
from sandbox.network.policy import Denied, Rule

MAX_TARGET = 2000
GoAction = Literal["list", "latest", "info", "mod", "zip"]

_GO_FILES: dict[str, GoAction] = {"info": "info", "mod": "mod", "zip": "zip"}
_PLAIN = re.compile(r"[A-Za-z0-9/._~@!+,=-]*", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!~-]{0,299}", re.ASCII)
_GO = re.compile(r"(?P<module>.+)/(?:@latest|@v/(?P<version>[^/]+?)(?:\.(?P<kind>info|mod|zip))?)")


@dataclass(frozen=True, slots=True)
class PythonPage:
    """`/simple/NAME/`: the files of a package (PEP 503, PEP 691)."""

    name: str


@dataclass(frozen=True, slots=True)
class PythonFile:
    """`/files/NAME/FILE`, or with `.metadata` the file's core metadata alone (PEP 658)."""

    name: str
    filename: str
    metadata: bool


@dataclass(frozen=True, slots=True)
class NpmDocument:
    """`/npm/NAME`: the versions of a package."""

    name: str


@dataclass(frozen=True, slots=True)
class NpmFile:
    """`/npm/NAME/-/FILE`."""

    name: str
    filename: str


@dataclass(frozen=True, slots=True)
class GoQuery:
    """`/go/MODULE/@v/…` or `/go/MODULE/@latest`; module and version unescaped."""

    module: str
    action: GoAction
    version: str = ""


@dataclass(frozen=True, slots=True)
class CargoConfig:
    """`/cargo/config.json`: where crates are downloaded from."""


@dataclass(frozen=True, slots=True)
class CargoIndex:
    """`/cargo/se/rd/serde`: the versions of a crate."""

    name: str


@dataclass(frozen=True, slots=True)
class CargoFile:
    """`/cargo/crates/NAME/VERSION/download`."""

    name: str
    version: str


Target = PythonPage | PythonFile | NpmDocument | NpmFile | GoQuery | CargoConfig | CargoIndex | CargoFile


def parse(target: str) -> Target:
    """What the target of a GET asks for. Raises Denied (REQUEST)."""
    path = _path(target)
    head, _, rest = path[1:].partition("/")
    try:
        if head == "simple":
            if not rest:
                raise Denied(Rule.REQUEST, "the index cannot be listed as a whole; ask for one package")
            return PythonPage(python_name(rest.removesuffix("/")))
        if head == "files":
            name, _, filename = rest.partition("/")
            plain = filename.removesuffix(".metadata")
            return PythonFile(python_name(name), _file(plain), metadata=plain != filename)
        if head == "npm":
            name, dash, filename = rest.partition("/-/")
            return NpmFile(npm_name(name), _file(filename)) if dash else NpmDocument(npm_name(name))
        if head == "go":
            return _go(rest)
        if head == "cargo":
            return _cargo(rest)
    except BadName as error:
        raise Denied(Rule.REQUEST, str(error)) from None
    raise Denied(Rule.REQUEST, "only package registries can be reached, by their tools (pip, uv, npm, go, cargo)")


def _path(target: str) -> str:
    """The decoded path: decoded once, plain characters only, no empty, `.` or `..` element. Raises Denied."""
    if not target.startswith("/") or len(target) > MAX_TARGET:
        raise Denied(Rule.REQUEST, "only package registries can be reached, by their tools (pip, uv, npm, go, cargo)")
    path = unquote(target, errors="replace")
    elements = path.removesuffix("/").split("/")[1:]
    if not _PLAIN.fullmatch(path) or any(element in ("", ".", "..") for element in elements if path != "/"):
        raise Denied(Rule.REQUEST, "the path holds what no package's address holds")
    return path


def _file(name: str) -> str:
    if not _FILE.fullmatch(name):
        raise BadName(f"{name[:300]!r} is not the name of a package's file")
    return name


def _go(rest: str) -> GoQuery:
    found = _GO.fullmatch(rest)
    if found is None:
        raise BadName(f"{rest[:300]!r} is no question of the Go proxy protocol")
    module, version, kind = go_unescape(found.group("module")), found.group("version"), found.group("kind")
    go_module(module)  # raises for what is no path of a module
    if version is None:
        return GoQuery(module, "latest")
    if version == "list" and kind is None:
        return GoQuery(module, "list")
    if kind is None:
        raise BadName(f"{rest[:300]!r} is no question of the Go proxy protocol")
    return GoQuery(module, _GO_FILES[kind], _file(go_unescape(version)))


def _cargo(rest: str) -> CargoConfig | CargoIndex | CargoFile:
    if rest == "config.json":
        return CargoConfig()
    parts = rest.split("/")
    if parts[0] == "crates" and len(parts) == 4 and parts[3] == "download":
        cargo_name(parts[1])  # raises for what is no crate's name
        return CargoFile(parts[1], _file(parts[2]))
    cargo_name(parts[-1])
    if rest.lower() != cargo_path(parts[-1]).lower():
        raise BadName(f"{rest[:300]!r} is not where an index keeps a crate")
    return CargoIndex(parts[-1])
