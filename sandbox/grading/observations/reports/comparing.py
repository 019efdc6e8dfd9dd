"""Whether two runs of the same work computed the same at an assertion.

Objects are compared by what they hold, and classes by their names in the delivered tests. A number that counts objects, a
time, and what an object keeps once it was compared differ for honest work as well. So each noted test stands in the first run
twice: what differs between the two copies there is not compared, and of an object only what it holds in both runs is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sandbox.grading.adapters.base import Hit

Noted = dict[int, list[tuple[object, object]]]


def noted_values(hits: Sequence[Hit], noted: Collection[int], names: Mapping[str, str] | None = None) -> Noted:
    """Assertion → what was reported at it, in order. `names`: as `names_of` gives them."""
    found: Noted = {}
    for hit in hits:
        if hit.site in noted:
            values, raised = (_named(part, names or {}) for part in (in_order(list(hit.values)), hit.raised))
            found.setdefault(hit.site, []).append((values, raised))
    return found


def names_of(test_id: str, ran_as: str) -> dict[str, str]:
    """Part of a test's id as it ran → the same part of its own id, where they differ.

    Each run gives test modules and functions other names, which are parts of the names of the classes that they define.
    """
    (path, *parts), (other, *ran) = (one.partition("[")[0].split("::") for one in (test_id, ran_as))
    pairs = [(PurePosixPath(other).stem, PurePosixPath(path).stem), *zip(ran, parts, strict=False)]
    return {here: own for here, own in pairs if here and here != own}


def _named(data: Any, names: Mapping[str, str]) -> Any:
    """Reported data with the names of types in other words."""
    if isinstance(data, list):
        return [_named(item, names) for item in data]
    if not isinstance(data, dict):
        return data
    made = {tag: _named(part, names) for tag, part in data.items()}
    for tag, part in made.items():
        if tag == "k":
            made[tag] = _types(part, names)
        elif tag in ("o", "s", "e") and isinstance(part, dict):
            made[tag] = {**part, "t": _types(part.get("t"), names)}
    return made


def _types(found: Any, names: Mapping[str, str]) -> Any:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        return found  # what no encoder writes
    return [".".join(names.get(part, part) for part in name.split(".")) for name in found]


def in_order(data: Any) -> Any:
    """Reported data with the items of sets sorted: their order follows hashes, and that of `None` differs between processes."""
    if isinstance(data, list):
        return [in_order(item) for item in data]
    if isinstance(data, dict):
        parts = {tag: in_order(part) for tag, part in data.items()}
        return {t: sorted(p, key=repr) if t in ("S", "F") and isinstance(p, list) else p for t, p in parts.items()}
    return data


def alike(first: Noted, second: Noted, number: int, copy: Noted) -> bool:
    """Whether an assertion was told the same in both runs. `copy` is what the test's second copy was told in the first."""
    here, there, again = first.get(number, []), second.get(number, []), copy.get(number, [])
    if len(here) != len(there):
        return False
    for index, (a, b) in enumerate(zip(here, there, strict=True)):
        twin: Any = again[index] if index < len(again) else None
        if not _same(list(a), list(b), None if twin is None else list(twin), within=False):
            return False
    return True


def _same(a: Any, b: Any, twin: Any, *, within: bool) -> bool:
    """`within`: inside an object of the product, whose parts may differ from object to object."""
    if a == b:
        return True
    if within and (a is None or b is None or (twin is not None and _differs(a, twin))):
        return True
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(
            _same(x, y, _part(twin, index), within=within) for index, (x, y) in enumerate(zip(a, b, strict=True))
        )
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        if a.keys() == {"o"}:
            return _same_objects(a["o"], b["o"], _part(twin, "o"))
        if a.keys() == {"w"}:
            return _same_views(a["w"], b["w"], _part(twin, "w"))
        return all(_same(a[key], b[key], _part(twin, key), within=within) for key in a)
    return False


def _same_views(a: Any, b: Any, twin: Any) -> bool:
    """Of what an object holds, the order may be that of a set."""
    a, b, twin = ({**part, "a": _by_name(part.get("a"))} if isinstance(part, dict) else None for part in (a, b, twin))
    return (
        isinstance(a, dict)
        and isinstance(b, dict)
        and a.keys() == b.keys()
        and all(_same(a[key], b[key], _part(twin, key), within=key == "a") for key in a)
    )


def _by_name(pairs: Any) -> Any:
    if not isinstance(pairs, list):
        return pairs
    return sorted(([pair[0], in_any_order(pair[1])] if pair[:1] == ["items"] else pair for pair in pairs), key=repr)


def in_any_order(data: Any) -> Any:
    if isinstance(data, dict) and len(data) == 1:
        return {tag: sorted(items, key=repr) if isinstance(items, list) else items for tag, items in data.items()}
    return data


def _same_objects(a: Any, b: Any, twin: Any) -> bool:
    if not isinstance(a, dict) or not isinstance(b, dict) or a.get("t") != b.get("t"):
        return False
    if "h" not in a or "h" not in b:
        return bool(a.get("b") == b.get("b"))
    held, other, again = (_held(part) for part in (a, b, twin))
    return all(_same(held[key], other[key], again.get(key), within=True) for key in held.keys() & other.keys())


def _held(data: Any) -> dict[str, Any]:
    """Attribute → value of a noted object."""
    parts = data.get("h") if isinstance(data, dict) else None
    pairs = parts.get("d") if isinstance(parts, dict) else None
    return {repr(pair[0]): pair[1] for pair in pairs or () if isinstance(pair, list) and len(pair) == 2}


def _part(data: Any, key: int | str) -> Any:
    try:
        return data[key]
    except (TypeError, LookupError):
        return None


def _differs(a: Any, twin: Any) -> bool:
    """Whether a plain part is another one in the second copy; of containers the parts are looked at."""
    kinds = ("l", "t", "d", "o", "S", "F")
    if isinstance(a, dict) and isinstance(twin, dict) and a.keys() == twin.keys() and a.keys() & set(kinds):
        return False
    return bool(a != twin)
