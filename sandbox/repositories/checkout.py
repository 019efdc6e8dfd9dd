"""An unconfigured checkout as data: its files and the contents of its project files. No code of it runs."""

from __future__ import annotations

import ast
import configparser
import datetime
import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sandbox.repositories.history import TreeFile

MAX_TEXT = 1 << 20


@dataclass(frozen=True)
class Checkout:
    """`name` and `version` as its source gave them; `files` are regular files below the top."""

    name: str
    version: str
    files: dict[str, TreeFile]
    released: datetime.date | None = None
    """When its newest file was written, or its archive was uploaded; None where neither is known."""
    notes: tuple[str, ...] = field(default=())
    """What its source left out, in words."""

    @property
    def year(self) -> int | None:
        return self.released.year if self.released else None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names, modes and contents."""
        total = hashlib.sha256(f"{self.name} {self.version}".encode())
        for path in sorted(self.files):
            file = self.files[path]
            total.update(f"\0{path}\0{int(file.executable)}\0".encode() + hashlib.sha256(file.content).digest())
        return total.hexdigest()

    def text(self, path: str) -> str:
        """A text file's content, bounded; empty where there is none."""
        file = self.files.get(path)
        return "" if file is None else file.content[:MAX_TEXT].decode("utf-8", "replace")

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """pyproject.toml; empty where there is none or it cannot be read."""
        return parse_toml(self.text("pyproject.toml"))

    def table(self, *keys: str) -> dict[str, Any]:
        """A table of pyproject.toml; empty where something else is there."""
        found: Any = self.pyproject
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    @cached_property
    def setup_cfg(self) -> configparser.RawConfigParser:
        return ini(self.text("setup.cfg"))

    @cached_property
    def tox(self) -> configparser.RawConfigParser:
        embedded = self.table("tool", "tox").get("legacy_tox_ini")
        return ini(embedded if isinstance(embedded, str) else self.text("tox.ini"))

    @cached_property
    def setup_calls(self) -> dict[str, Any]:
        """Literal keyword arguments of `setup(...)` in setup.py: names bound to literals at its top level count."""
        try:
            tree = ast.parse(self.text("setup.py"))
        except (SyntaxError, ValueError, RecursionError):
            return {}
        names: dict[str, Any] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                value = _literal(node.value, names)
                if value is not None:
                    names[node.targets[0].id] = value
        found: dict[str, Any] = {}
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and _called(call.func) == "setup":
                for keyword in call.keywords:
                    value = _literal(keyword.value, names)
                    if keyword.arg and value is not None:
                        found[keyword.arg] = value
        return found

    def folders(self) -> Iterator[str]:
        """Every directory that holds a file, `.` among them."""
        seen = {"."}
        for path in self.files:
            parts = path.split("/")[:-1]
            seen |= {"/".join(parts[: n + 1]) for n in range(len(parts))}
        yield from sorted(seen)


def parse_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def ini(text: str) -> configparser.RawConfigParser:
    """An ini file, or an empty one where it cannot be read."""
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return configparser.RawConfigParser()
    return parser


def strings(value: object) -> list[str]:
    """The strings of a list, or the lines of a text."""
    if isinstance(value, str):
        return [line.strip() for line in value.splitlines() if line.strip()]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _literal(node: ast.expr, names: dict[str, Any]) -> Any:
    """The value of a literal that may use known names and `+`; None for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _literal(node.left, names), _literal(node.right, names)
        return left + right if isinstance(left, list) and isinstance(right, list) else None
    if isinstance(node, ast.List | ast.Tuple):
        items = [_literal(item, names) for item in node.elts]
        return [item for item in items if item is not None]
    if isinstance(node, ast.Dict):
        pairs = [(_literal(k, names), _literal(v, names)) for k, v in zip(node.keys, node.values, strict=True) if k]
        return {k: v for k, v in pairs if isinstance(k, str) and v is not None}
    return node.value if isinstance(node, ast.Constant) else None
