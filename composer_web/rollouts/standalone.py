"""One trajectory as a file: a standalone page, JSON lines, or ATIF."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.contrib.staticfiles import finders
from django.template.loader import render_to_string

from composer_web.rollouts import transcript
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.records import open_whole
from composer_web.rollouts.trajectory_store import WINDOW, Reading

MAX_PAGE = 64 << 20
"""Maximum bytes of turns in the page. It states how much is omitted."""
STYLES = ("tokens", "base", "components", "tables", "trajectory")


def page(rollout: Rollout, read: Reading) -> Iterator[str]:
    """The page in chunks. Styles are inline; it contains no scripts and loads nothing."""
    rest = read.head.trajectory
    context = {
        "rollout": rollout,
        "head": read.head,
        "trajectory": rest,
        "opening": transcript.opening(read.head.messages),
        "notices": transcript.notices(read.head.facts, missing=read.head.missing),
        "patch": transcript.diff_view(rest.patch) if rest else None,
        "style": "\n".join(_style(name) for name in STYLES),
    }
    yield render_to_string("rollouts/standalone/top.html", context)
    written = shown = 0
    for start in range(0, read.total, WINDOW):
        turns = read.turns(range(start, min(start + WINDOW, read.total)))
        views = [transcript.view(turn, whole=True) for turn in turns]
        piece = render_to_string("rollouts/standalone/turns.html", {"turns": views})
        written += len(piece)
        if written > MAX_PAGE:
            break
        shown += len(turns)
        yield piece
    yield render_to_string("rollouts/standalone/end.html", {**context, "left_out": read.total - shown})


def _style(name: str) -> str:
    path = finders.find(f"css/{name}.css")
    assert isinstance(path, str), f"css/{name}.css is part of the product"
    with open(path, encoding="utf-8") as file:
        return file.read()


def lines(rollout: Rollout) -> Iterator[str]:
    """JSON lines, nothing cut: the head, then each turn, then each context window with its tokens.

    By windows of the reading copy, so that one is in memory at a time; where that leaves something out, by the blob, which
    is parsed whole. Raises UserError and ArtifactError before the first line.
    """
    return _lines(open_whole(rollout))


def _lines(read: Reading) -> Iterator[str]:
    assert read.head.trajectory is not None, "it is recorded"
    yield _line("trajectory", read.head.trajectory.model_dump(mode="json", exclude={"turns", "segments"}))
    for turn in read.each():
        yield _line("turn", turn.model_dump(mode="json"))
    for index in range(len(read.head.segment_tokens)):
        yield _line("segment", {"index": index, **read.segment(index).model_dump(mode="json")})


def _line(kind: str, fields: dict[str, object]) -> str:
    return json.dumps({"type": kind, **fields}, ensure_ascii=False) + "\n"
