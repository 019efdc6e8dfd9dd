"""`python -m tests.bench NAME …` runs the bench of that name, in whichever folder it lies: what `make bench` calls."""

from __future__ import annotations

import os
import pkgutil
import sys

import tests.bench


def module_of(name: str) -> str:
    """Dotted name of the module of a bench. Raises SystemExit that lists the benches."""
    found = {
        module.name.rpartition(".")[2]: module.name
        for module in pkgutil.walk_packages(tests.bench.__path__, "tests.bench.")
        if not module.ispkg and not module.name.rpartition(".")[2].startswith(("test_", "__"))
    }
    try:
        return found[name.replace("-", "_")]
    except KeyError:
        raise SystemExit(f"no bench {name!r}; there are {', '.join(sorted(found))}") from None


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("say which: make bench NAME=sandbox")
    os.execv(sys.executable, [sys.executable, "-m", module_of(sys.argv[1]), *sys.argv[2:]])
