"""A report while it is edited: what the form holds, block by block, with what is wrong at each field. Nothing of it is stored.

A block's fields are named `UID.field`; the order of the hidden fields `block` is the order of the blocks.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from composer_web.core.errors import UserError
from composer_web.runs import metrics, selectors
from composer_web.runs.charts.panels import check_keys
from composer_web.runs.models import Report, Run
from composer_web.runs.reports.blocks import PanelBlock, parse
from composer_web.runs.reports.drawing import Drawn, drawn
from composer_web.runs.reports.services import runs_of

OFFERED = 200
"""Newest runs that the field for runs suggests; every other one is found by its number or name."""
NUMBER = re.compile(r"#?(\d{1,17})$")
PLAIN = ("title", "size", "height", "axis", "smoothing", "group")
REQUIRED = {"keys": "choose at least one metric", "runs": "choose at least one run"}


@dataclass
class DraftBlock:
    uid: str
    kind: str
    values: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    chosen: list[Run] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Metrics that the field suggests: those of all chosen runs of the draft."""
    drawn: Drawn | None = None

    def raw(self) -> dict[str, Any]:
        """The block as `blocks.parse` reads it."""
        if self.kind == "text":
            return {"kind": "text", "text": self.values.get("text", "")}
        given = {name: self.values[name] for name in PLAIN if self.values.get(name)}
        numbers = {name: int(given[name]) for name in ("size", "height") if given.get(name, "").isdigit()}
        title = self.values.get("title", "").strip() or ", ".join(self.keys)[:80] or "Panel"
        return {"kind": "panel", **given, **numbers, "title": title, "keys": self.keys, "runs": self.runs}


def new_block(kind: str) -> DraftBlock:
    return DraftBlock(f"b{secrets.token_hex(4)}", "text" if kind == "text" else "panel")


def of_report(report: Report) -> list[DraftBlock]:
    return [_of_stored(f"b{at}", block) for at, block in enumerate(report.blocks)]


def _of_stored(uid: str, block: Mapping[str, Any]) -> DraftBlock:
    if block["kind"] == "text":
        return DraftBlock(uid, "text", {"text": block["text"]})
    values = {name: str(block[name]) for name in PLAIN if name in block}
    return DraftBlock(uid, "panel", values, keys=list(block["keys"]), runs=list(block["runs"]))


def of_form(posted: QueryDict) -> list[DraftBlock]:
    """The blocks of a posted form. What was typed stays, right or wrong."""
    return [
        _of_form(posted, uid) for uid in dict.fromkeys(posted.getlist("block")) if re.fullmatch(r"b[0-9a-f]{1,12}", uid)
    ]


def _of_form(posted: QueryDict, uid: str) -> DraftBlock:
    kind = "text" if posted.get(f"{uid}.kind") == "text" else "panel"
    names = ("text",) if kind == "text" else (*PLAIN, "key", "run")
    values = {name: posted.get(f"{uid}.{name}", "") for name in names}
    keys = list(dict.fromkeys(posted.getlist(f"{uid}.keys")))
    runs = [int(text) for text in dict.fromkeys(posted.getlist(f"{uid}.runs")) if NUMBER.match(text)]
    return DraftBlock(uid, kind, values, keys=keys, runs=runs)


def resolve(blocks: Sequence[DraftBlock]) -> None:
    """Take over the metric and the run that were typed, and draw the panels. What is unknown stays in its field, with the reason.

    Four queries, whatever the number of blocks."""
    panels = [block for block in blocks if block.kind == "panel"]
    if not panels:
        return
    _add_runs(panels)
    found = runs_of(pk for block in panels for pk in block.runs)
    names = metrics.names(*found.values())
    for block in panels:
        block.chosen = [found[pk] for pk in block.runs if pk in found]
        block.names = names
        if missing := [pk for pk in block.runs if pk not in found]:
            block.errors["runs"] = f"there is no run {missing[0]} in this project; it is left out"
            block.runs = [run.pk for run in block.chosen]
        _add_key(block)
        try:
            (made,) = parse([block.raw()]).blocks
        except UserError:
            continue  # not complete yet; saving says what is missing
        if isinstance(made, PanelBlock):
            block.drawn = drawn(made, found)


def _add_runs(panels: Sequence[DraftBlock]) -> None:
    typed = {block.uid: text for block in panels if (text := block.values.get("run", "").strip())}
    if not typed:
        return
    numbers = {uid: int(found[1]) for uid, text in typed.items() if (found := NUMBER.search(text))}
    known = {run.pk for run in runs_of(numbers.values()).values()}
    named = dict(selectors.runs().filter(name__in=typed.values()).order_by("pk").values_list("name", "pk"))
    for block in panels:
        text = typed.get(block.uid, "")
        number = numbers.get(block.uid)
        pk = named.get(text, number if number in known else None)
        if pk is not None:
            block.runs = list(dict.fromkeys([*block.runs, pk]))
            block.values["run"] = ""
        elif text:
            block.errors["run"] = f"there is no run {text[:60]!r} in this project; choose one of the list"


def _add_key(block: DraftBlock) -> None:
    key = block.values.get("key", "").strip()
    if not key:
        return
    try:
        check_keys([key], block.names)
    except UserError as error:
        block.errors["key"] = error.message
    else:
        block.keys = list(dict.fromkeys([*block.keys, key]))
        block.values["key"] = ""


def place_errors(blocks: Sequence[DraftBlock], error: UserError) -> dict[str, str]:
    """Put what a save refused at the fields of the blocks; returns what concerns the report itself."""
    rest: dict[str, str] = {}
    for path, message in (error.fields or {error.field: error.message}).items():
        parts = path.split(".")
        if parts[0] == "blocks" and len(parts) > 2 and parts[1].isdigit() and int(parts[1]) < len(blocks):
            block = blocks[int(parts[1])]
            empty = REQUIRED.get(parts[2]) if not getattr(block, parts[2], True) else None
            block.errors.setdefault(parts[2], empty or message.removeprefix(f"{path}: "))
        else:
            rest[parts[0] or "title"] = message
    return rest


def typed_left(blocks: Sequence[DraftBlock]) -> bool:
    """Whether a typed metric or run was refused: saving would lose it."""
    return any("key" in block.errors or "run" in block.errors for block in blocks)
