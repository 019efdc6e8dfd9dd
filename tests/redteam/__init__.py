"""The red team: every exploit of the catalogue, really tried, beside an honest run that looks like it.

One exploit a file (`a01_…` to `c07_…`), found by its name: a module that defines `PAIR`. `make redteam` plays all of
them on each backend that this machine has.
"""

from __future__ import annotations

import importlib
import pkgutil
import re

from sandbox.grading.redteam import order_of
from tests.redteam.base import Pair

FILE = re.compile(r"[abc]\d\d_\w+")


def pairs() -> list[Pair]:
    """Every pair, in the order of the catalogue. Raises ValueError when two have one id."""
    found: dict[str, Pair] = {}
    for module in pkgutil.iter_modules(__path__):
        if FILE.fullmatch(module.name):
            pair: Pair = importlib.import_module(f"{__name__}.{module.name}").PAIR
            if found.setdefault(pair.exploit.id, pair) is not pair:
                raise ValueError(f"two files of the red team have the id {pair.exploit.id}")
    return sorted(found.values(), key=lambda pair: order_of(pair.exploit.id))
