"""State + events equals a fresh read: whatever is written, a page that was told everything holds what the database has."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from composer_web.accounts.models import User
from composer_web.runs import metrics, services
from composer_web.runs.charts import series
from composer_web.runs.live import feed as feeds
from composer_web.runs.live.feed import EVERYTHING, Feed, Terms, Wanted
from composer_web.runs.models import Metric, Run

pytestmark = pytest.mark.django_db

NAMES = ("reward/mean", "reward/best_of_k", "eval/pass1")
FEW = 8
"""Buckets of a series here, so that short runs narrow too."""

points = st.tuples(st.sampled_from(NAMES), st.integers(0, 90), st.floats(-9, 9).map(lambda value: round(value, 3)))
writes = st.lists(points, min_size=1, max_size=12)


class Page:
    """What js/stream.js does with messages."""

    def __init__(self) -> None:
        self.seq: int | None = None
        self.series: dict[str, list[Any]] = {}
        self.marks: list[Any] = []
        self.parts: dict[str, str] = {}
        self.told = 0

    def take(self, feed: Feed, text: str) -> None:
        self.told += 1
        message = orjson.loads(text)
        if "parts" in message:
            self.parts |= message["parts"]
            return
        if message["base"] is None:
            self.series, self.marks = {}, []
        assert message["base"] in (None, self.seq), "a gap"
        self.seq = message["seq"]
        for name, (kept, rest) in message.get("series", {}).items():
            self.series[name] = [*self.series.get(name, [])[:kept], *rest]
        if "marks" in message:
            kept, rest = message["marks"]
            self.marks = [*self.marks[:kept], *rest]


@given(batches=st.lists(st.tuples(writes, st.booleans()), min_size=1, max_size=10))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_carried_on_is_a_fresh_read(draft: Run, batches: list[tuple[list[tuple[str, int, float]], bool]]) -> None:
    """Steps that come late, again, or long after the others; reads after any number of writes."""
    Metric.objects.filter(run=draft).delete()
    held: dict[str, series.Line] = {}
    since: int | None = None
    for rows, reads in batches:
        metrics.record_many(run=draft, rows=[(step, name, value) for name, step, value in rows])
        lowest = min(step for _, step, _ in rows)
        since = lowest if since is None else min(since, lowest)
        if reads:
            held = series.carried_on(draft, NAMES, held, since=since, count=FEW)
            since = None
            assert held == series.lines(draft, NAMES, count=FEW)
    assert all(len(line.rows) <= FEW for line in held.values())


@given(before=st.lists(st.integers(0, 3), max_size=6), now=st.lists(st.integers(0, 3), max_size=6))
def test_a_tail_makes_the_new_list_of_the_old_one(before: list[int], now: list[int]) -> None:
    tail = series.tail(before, now)
    if tail is None:
        assert before == now
    else:
        kept, rest = tail
        assert [*before[:kept], *rest] == now and before != now
        assert kept == len(before) or not rest or before[kept] != rest[0]  # as little as possible is told


class Reader:
    """A feed without its clock: what was said is read when the test says so."""

    def __init__(self, run: Run) -> None:
        self.feed = Feed(run.pk)
        self.wanted = EVERYTHING

    def read(self) -> None:
        wanted, self.wanted = self.wanted, Wanted()
        self.feed.apply(feeds.read(self.feed.pk, self.feed.lines, wanted))

    def join(self, page: Page, terms: Terms) -> None:
        self.feed.watchers[page] = terms
        for text in self.feed.everything(page):
            page.take(self.feed, text)


happenings = st.one_of(
    st.tuples(st.just("write"), writes),
    st.tuples(st.just("event"), st.integers(0, 90)),
    st.tuples(st.just("read"), st.none()),
    st.tuples(st.just("join"), st.none()),
)


@pytest.mark.slow
@given(happened=st.lists(happenings, min_size=1, max_size=14))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whoever_joins_whenever_holds_what_a_fresh_read_gives(draft: Run, happened: list[tuple[str, Any]]) -> None:
    Metric.objects.filter(run=draft).delete()
    reader, pages = Reader(draft), [Page()]
    reader.join(pages[0], Terms(parts=False, may_operate=False))
    for what, value in [*happened, ("read", None), ("join", None)]:
        if what == "write":
            metrics.record_many(run=draft, rows=[(step, name, number) for name, step, number in value])
            reader.wanted |= Wanted(since=min(step for _, step, _ in value))
        elif what == "event":
            services.add_event(run=draft, kind="checkpoint", message=f"saved {value}", step=value)
            reader.wanted |= Wanted(marks=True)
        elif what == "read":
            reader.read()
        else:
            pages.append(Page())
            reader.join(pages[-1], Terms(parts=False, may_operate=False))
    fresh = feeds.read(draft.pk, {}, EVERYTHING)
    assert fresh.lines is not None and fresh.marks is not None
    for page in pages:
        assert page.series == {n: [list(row) for row in _rows(fresh, n)] for n in fresh.names}
        assert page.marks == [list(mark) for mark in fresh.marks]


def _rows(found: feeds.FeedUpdate, name: str) -> list[series.Row]:
    assert found.lines is not None
    return found.lines[name].rows if name in found.lines else []


def test_what_did_not_change_is_not_told_and_parts_go_by_role(running: Run, people: dict[str, User]) -> None:
    reader = Reader(running)
    viewer, operator, chart = Page(), Page(), Page()
    reader.join(viewer, Terms(parts=True, may_operate=False))
    reader.join(operator, Terms(parts=True, may_operate=True))
    reader.join(chart, Terms(parts=False, may_operate=True))
    reader.read()
    assert 'id="do-pause"' in operator.parts["head"] and 'id="do-pause"' not in viewer.parts["head"]
    assert viewer.parts["events"] == operator.parts["events"] and chart.parts == {}
    assert "csrfmiddlewaretoken" not in operator.parts["head"]  # a text for all can hold nobody's
    before = viewer.told
    reader.wanted = Wanted(since=1, marks=True, parts=frozenset({"events", "evals"}))
    reader.read()
    assert viewer.told == before
    metrics.record(run=running, step=1, values={"reward/mean": 0.5})
    reader.wanted = Wanted(since=1, parts=feeds.STATUS)
    reader.read()
    assert chart.series["reward/mean"] == [[1, 0.5, 0.5, 0.5]] and "0.5" in viewer.parts["status"]


def test_what_a_read_costs_does_not_grow_with_the_run(running: Run) -> None:
    held: dict[str, series.Line] = {}
    counts = []
    for first in (1, 41, 401):
        rows = [(step, name, step / 7) for step in range(first, first + 40) for name in NAMES]
        metrics.record_many(run=running, rows=rows)
        held = series.lines(running, NAMES, count=feeds.BUCKETS)
        metrics.record(run=running, step=first + 40, values=dict.fromkeys(NAMES, 1.0))
        with CaptureQueriesContext(connection) as seen:
            held = series.carried_on(running, NAMES, held, since=first + 40, count=feeds.BUCKETS)
        counts.append(len(seen))
    assert counts == [1, 1, 1]
