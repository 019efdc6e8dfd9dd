"""One run as all pages of a server process watch it.

The run is read once for all of them, at most every `INTERVAL` seconds and only when something was said of it. What changed goes
out as one text, written once:

    {"run": 12, "seq": 8, "base": 7, "series": {"reward/mean": [239, [[500, 0.1, 0.4, 0.2]]]}, "marks": [3, [...]]}
    {"run": 12, "parts": {"status": "<section …"}}

`[239, rows]` says that a page's first 239 rows stay and what follows them. A message builds on `base`; a page that holds
another one asks again and gets everything, with `base` null. A page that was told everything holds what a fresh read gives.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from channels.db import DatabaseSyncToAsync
from django.db import connection, transaction

from composer_web.live.hub import hub
from composer_web.runs import selectors
from composer_web.runs.charts import annotations as run_annotations
from composer_web.runs.charts import panels, series
from composer_web.runs.charts.axes import Axis
from composer_web.runs.charts.series import Line, Row
from composer_web.runs.live import parts

log = logging.getLogger(__name__)

MAX = 8
"""Maximum number of runs that a page may watch."""
INTERVAL = 0.5
SLOW_INTERVAL = 5.0
"""Seconds between expensive reads, and after a failed read."""
AGAIN = 60.0
"""Seconds after which everything is read without a hint. A lost hint costs freshness, never correctness."""
BUCKETS = 240
"""Must match the number that js/chart.js requests."""
STATUS, ALL = frozenset({"status"}), frozenset({"head", "status", "events", "groups", "evals"})
"""Parts of the page that change with the metrics, and parts that change with anything else."""
SLOW = frozenset({"timing", "clusters", "failures"})
OF_RL = frozenset({"groups", "clusters", "failures"})
HEAD, OPERATORS_HEAD = "head", "head of operators"
Mark = tuple[float, int, str, str]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a watcher receives of a run."""

    parts: bool
    """Whether to send the parts of the run's page too."""
    may_operate: bool


class Watcher(Protocol):
    """A WebSocket."""

    def take(self, feed: Feed, text: str) -> None:
        """Send `text` once the socket accepts it. Never blocks: overflow is dropped, and `Feed.everything` is sent
        later."""


@dataclass(slots=True)
class Wanted:
    """What to read."""

    since: int | None = None
    """Read metrics from this step on."""
    whole: bool = False
    """Read all metrics."""
    marks: bool = False
    parts: frozenset[str] = frozenset()

    def __or__(self, other: Wanted) -> Wanted:
        since = min((step for step in (self.since, other.since) if step is not None), default=None)
        return Wanted(since, self.whole or other.whole, self.marks or other.marks, self.parts | other.parts)


EVERYTHING = Wanted(whole=True, marks=True, parts=ALL)


@dataclass(frozen=True, slots=True)
class FeedUpdate:
    """Result of a read. None for anything not requested."""

    names: tuple[str, ...]
    lines: dict[str, Line] | None
    marks: list[Mark] | None
    parts: dict[str, str]
    """HTML by name of the part."""


def read(pk: int, before: Mapping[str, Line], wanted: Wanted) -> FeedUpdate:
    with snapshot():
        return _read(pk, before, wanted)


@contextmanager
def snapshot() -> Iterator[None]:
    """One state of the database for all that is read inside, so that tile, chart and table of a value agree."""
    if connection.in_atomic_block:  # of a caller, who has begun to read
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def _read(pk: int, before: Mapping[str, Line], wanted: Wanted) -> FeedUpdate:
    run = selectors.get_run(pk)
    names = tuple(key for panel in panels.headline(run.kind, run.latest) for key in panel.shown)
    lines = None
    if wanted.whole:
        lines = series.lines(run, names, count=BUCKETS)
    elif wanted.since is not None:
        lines = series.carried_on(run, names, before, since=wanted.since, count=BUCKETS)
    shown = wanted.parts if run.kind == "rl" else wanted.parts - OF_RL
    html = {part: parts.html(run, part, may_operate=False) for part in shown}
    if HEAD in shown:
        html[OPERATORS_HEAD] = parts.html(run, HEAD, may_operate=True)
    placed: list[Mark] | None = None
    if wanted.marks:
        placed = [(mark.x, mark.step, mark.kind, mark.text) for mark in run_annotations.of_run(run, Axis.STEP).marks]
    return FeedUpdate(names, lines, placed, html)


class Round:
    """Pending reads of one kind, executed at most every `seconds`."""

    def __init__(self, seconds: float, wanted: Wanted) -> None:
        self.seconds = seconds
        self._wanted = wanted
        self._news = asyncio.Event()
        self._news.set()

    def want(self, wanted: Wanted) -> None:
        self._wanted |= wanted
        self._news.set()

    async def next(self) -> Wanted:
        await self._news.wait()
        self._news.clear()
        wanted, self._wanted = self._wanted, Wanted()
        return wanted


class Feed:
    def __init__(self, pk: int) -> None:
        self.pk = pk
        self.seq = 0
        """0 until the first read of the run."""
        self.lines: dict[str, Line] = {}
        self.marks: list[Mark] = []
        self.parts: dict[str, str] = {}
        self.watchers: dict[Watcher, Terms] = {}
        self._names: tuple[str, ...] = ()
        self._fast, self._slow = Round(INTERVAL, EVERYTHING), Round(SLOW_INTERVAL, Wanted(parts=SLOW))
        self._written = (0, "")
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def start(self) -> asyncio.Task[None]:
        """Start listening and reading. The task ends once the run's hints are subscribed to."""
        if not self._tasks:
            subscribed = asyncio.create_task(hub().hear(f"run:{self.pk}", self.hear))
            self._tasks = (subscribed, asyncio.create_task(self._serve(subscribed)))
        return self._tasks[0]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await hub().hush(f"run:{self.pk}", self.hear)

    async def _serve(self, subscribed: asyncio.Task[None]) -> None:
        await subscribed  # what is said from here on is heard, so nothing is missed after the first read
        await asyncio.gather(self._keep(self._fast), self._keep(self._slow), self._again())

    def hear(self, hint: Mapping[str, Any]) -> None:
        since = hint.get("since")
        if since is None:
            self._fast.want(Wanted(marks=True, parts=ALL))
            self._slow.want(Wanted(parts=SLOW))
        else:
            self._fast.want(Wanted(since=since, parts=STATUS))
            self._slow.want(Wanted(marks=True, parts=SLOW))  # some marks are metrics

    def everything(self, watcher: Watcher) -> list[str]:
        """Messages for a watcher without state. Empty before the first read, which is sent to every watcher."""
        if not self.seq:
            return []
        if self._written[0] != self.seq:
            known = {name: (0, self.lines[name].rows if name in self.lines else ()) for name in self._names}
            message = {"run": self.pk, "seq": self.seq, "base": None, "series": known, "marks": (0, self.marks)}
            self._written = (self.seq, orjson.dumps(message).decode())
        terms = self.watchers[watcher]
        html = self._html(self.parts, terms.may_operate) if terms.parts else None
        return [text for text in (self._written[1], html) if text]

    async def _again(self) -> None:
        while True:
            await asyncio.sleep(AGAIN)
            self._fast.want(EVERYTHING)

    async def _keep(self, round_: Round) -> None:
        while True:
            wanted = await round_.next()
            began = time.monotonic()
            try:
                found = await DatabaseSyncToAsync(read, thread_sensitive=False)(self.pk, self.lines, wanted)
            except Exception:  # of whatever kind: the others who watch are told when it is over
                log.exception("run %d cannot be read for its watchers; next try in %.0f s", self.pk, SLOW_INTERVAL)
                round_.want(wanted)
                await asyncio.sleep(SLOW_INTERVAL)
                continue
            self.apply(found)
            await asyncio.sleep(max(0.0, round_.seconds - (time.monotonic() - began)))

    def apply(self, found: FeedUpdate) -> None:
        """Store what was read and send the changes to the watchers."""
        told: dict[str, Any] = {}
        self._names = found.names
        if found.lines is not None:
            tails = {name: series.tail(_rows(self.lines, name), _rows(found.lines, name)) for name in found.names}
            if changed := {name: tail for name, tail in tails.items() if tail is not None}:
                told["series"] = changed
            self.lines = found.lines
        if found.marks is not None:
            if (tail := series.tail(self.marks, found.marks)) is not None:
                told["marks"] = tail
            self.marks = found.marks
        new = {name: html for name, html in found.parts.items() if self.parts.get(name) != html}
        self.parts |= new
        if not self.seq:
            if found.lines is not None:  # else the slow round was first
                self.seq = 1
                for watcher in self.watchers:
                    for text in self.everything(watcher):
                        watcher.take(self, text)
            return
        if told:
            self.seq += 1
            text = orjson.dumps({"run": self.pk, "seq": self.seq, "base": self.seq - 1, **told}).decode()
            for watcher in self.watchers:
                watcher.take(self, text)
        if new:
            texts = {may_operate: self._html(new, may_operate) for may_operate in (False, True)}
            for watcher, terms in self.watchers.items():
                if terms.parts and (html := texts[terms.may_operate]):
                    watcher.take(self, html)

    def _html(self, known: Mapping[str, str], may_operate: bool) -> str | None:
        left_out = HEAD if may_operate else OPERATORS_HEAD
        shown = {HEAD if name == OPERATORS_HEAD else name: html for name, html in known.items() if name != left_out}
        return orjson.dumps({"run": self.pk, "parts": shown}).decode() if shown else None


def _rows(lines: Mapping[str, Line], name: str) -> list[Row]:
    return lines[name].rows if name in lines else []


_feeds: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Feed]] = weakref.WeakKeyDictionary()


async def join(pk: int, watcher: Watcher, terms: Terms) -> Feed:
    """Subscribe `watcher` to the run; it receives the full state first. Joining again sends the full state again.
    Raises redis' errors."""
    feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
    feed = feeds.get(pk) or feeds.setdefault(pk, Feed(pk))
    feed.watchers[watcher] = terms
    try:
        await asyncio.shield(feed.start())
    except BaseException:
        await leave(feed, watcher)
        raise
    for text in feed.everything(watcher):
        watcher.take(feed, text)
    return feed


async def leave(feed: Feed, watcher: Watcher) -> None:
    """Unsubscribe. The last watcher to leave stops the feed."""
    feed.watchers.pop(watcher, None)
    feeds = _feeds.get(asyncio.get_running_loop(), {})
    if not feed.watchers and feeds.get(feed.pk) is feed:
        del feeds[feed.pk]
        await feed.stop()
