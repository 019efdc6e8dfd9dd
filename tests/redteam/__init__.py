"""The red team: every exploit of the catalogue, really tried, beside an honest run that looks like it.

A file holds one exploit (`PAIR`) or several of one kind (`PAIRS`). It lies in the folder of its class and is found by
its name (`a01_…`). `make redteam` plays all of them on each backend that this machine has.
"""

from __future__ import annotations

import importlib
import pkgutil
import re

from sandbox.grading.redteam import order_of
from tests.redteam.base import Pair

FILE = re.compile(r"[a-z]\d{2,3}_\w+")


def pairs() -> list[Pair]:
    """Every pair, in the order of the catalogue. Raises ValueError when two have one id."""
    found: dict[str, Pair] = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        if FILE.fullmatch(module.name.rpartition(".")[2]):
            loaded = importlib.import_module(module.name)
            held: tuple[Pair, ...] = loaded.PAIRS if hasattr(loaded, "PAIRS") else (loaded.PAIR,)
            for pair in held:
                if found.setdefault(pair.exploit.id, pair) is not pair:
                    raise ValueError(f"two exploits of the red team have the id {pair.exploit.id}")
    return sorted(found.values(), key=lambda pair: order_of(pair.exploit.id))
