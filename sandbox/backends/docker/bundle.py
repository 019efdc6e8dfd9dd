"""The sources that travel into a container: the entry module and what it imports of this package."""

from __future__ import annotations

import ast
import json
from functools import lru_cache
from pathlib import Path

ENTRY = "sandbox.backends.docker.inside"
PREFIX = "sandbox"
ROOT = Path(__file__).resolve().parents[3]
BOOT = Path(__file__).with_name("boot.py")


def command(python: str) -> list[str]:
    """What a container runs: isolated from the image's site packages and environment, and short, for it shows."""
    return [python, "-I", "-S", "-c", "exec(open(0,'rb',0,closefd=False).readline())"]


def message(request: dict) -> bytes:
    """The first bytes on the container's standard input."""
    body = json.dumps({"modules": _modules(), "entry": ENTRY, "request": request}).encode()
    return f"exec({BOOT.read_text()!r})\n".encode() + len(body).to_bytes(4, "little") + body


@lru_cache(maxsize=1)
def _modules() -> dict[str, tuple[str, bool]]:
    """Name → (source, is package) of everything that ENTRY needs at import time."""
    found: dict[str, tuple[str, bool]] = {}
    wanted = [ENTRY]
    while wanted:
        name = wanted.pop()
        if name in found or name.partition(".")[0] != PREFIX:
            continue
        module = ROOT.joinpath(*name.split("."))
        package = module.is_dir()
        file = module / "__init__.py" if package else module.with_suffix(".py")
        if not file.is_file():
            continue  # `from module import name` where name is no module
        source = file.read_text()
        found[name] = (source, package)
        wanted += _imports(source)
        wanted.append(name.rpartition(".")[0])
    return found


def _imports(source: str) -> list[str]:
    """Modules that top-level statements import, or may import: `from a import b` names `a` and `a.b`."""
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
            if node.module.partition(".")[0] == PREFIX:
                names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
