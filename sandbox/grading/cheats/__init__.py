"""Scripted cheats: the part of the catalogue that can be tried on any task. A new exploit is one new file here."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from sandbox.grading.cheats.base import Exploit


def exploits_in(package: ModuleType) -> list[Exploit]:
    """Every module-level `EXPLOIT` of a package, by id. Raises ValueError when two have the same id."""
    found: dict[str, Exploit] = {}
    for module in pkgutil.iter_modules(package.__path__):
        exploit = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "EXPLOIT", None)
        if isinstance(exploit, Exploit) and found.setdefault(exploit.id, exploit) is not exploit:
            raise ValueError(f"two exploits of {package.__name__} have the id {exploit.id}")
    return sorted(found.values(), key=lambda exploit: (exploit.id[0], int(exploit.id[1:].partition("-")[0])))


def catalogue() -> list[Exploit]:
    """The exploits of this package, by id."""
    return exploits_in(importlib.import_module(__name__))
