"""Heads of tables: a column whose values are not plain has help that opens by a button; a column of states lists them all."""

from __future__ import annotations

import re
from collections.abc import Iterator

import django_tables2
import pytest
from django.template.loader import render_to_string
from django.test import RequestFactory
from django.urls import get_resolver
from django_tables2.columns.base import BoundColumn

from composer_web.runs.http.tables import COLUMN_METRICS, RunTable
from composer_web.ui.tables import StateColumn, Table, TickColumn
from composer_web.ui.templatetags import states
from composer_web.ui.templatetags.heads import column_help
from composer_web.ui.texts.state_meanings import LABELS, MEANINGS
from trainer.learning.metrics import METRICS

PLAIN = {
    "Again", "Agent", "Author", "By", "Category", "Changed", "Created", "Created by", "Description", "Draft", "Ended", "Error",
    "Evaluation", "Finding", "Format", "Found", "From rollout", "Imported", "Last turn", "Message", "Model", "Name", "Notes",
    "Policy", "Published", "Release", "Report", "Requested", "Rollout", "Rule", "Run", "Runs", "Session", "Since", "Suite",
    "Tags", "Task", "Tasks", "Title", "Trajectory", "Turn", "Until", "What was found", "When", "Who", "What", "Annotation",
}  # fmt: skip
"""Heads that say it all."""


class Small(Table):
    state = StateColumn("evaluation")
    pass1 = django_tables2.Column(verbose_name="pass@1", orderable=False)
    created_at = django_tables2.Column(verbose_name="Created")


def every(kind: type = Table) -> Iterator[type[Table]]:
    get_resolver().url_patterns  # noqa: B018 (loads every view, and with it every table)
    for one in kind.__subclasses__():
        yield from every(one)
        if one.base_columns and one.__module__.startswith("composer_web."):
            yield one


def columns(table: type[Table]) -> list[BoundColumn]:
    given = {"chosen": list(table.base_columns)} if hasattr(table, "unusual") else {}
    return list(table([], **given).columns)


@pytest.mark.parametrize("table", list(every()), ids=lambda table: table.__name__)
def test_every_column_that_is_not_plain_has_help(table: type[Table]) -> None:
    for column in columns(table):
        if isinstance(column.column, TickColumn):
            continue
        kinds, text = column_help(column)
        header = str(column.header)
        assert kinds or text or header in PLAIN, f"{table.__name__}: say in `help` what {header!r} means"
        assert all(kind in MEANINGS for kind in kinds.split())
        assert not text or (text.endswith(".") and text[0].isupper()), text
    assert set(table.help) <= set(table.base_columns)


@pytest.mark.parametrize("table", list(every()), ids=lambda table: table.__name__)
def test_every_column_of_states_lists_them(table: type[Table]) -> None:
    for name, column in table.base_columns.items():
        if name in ("state", "verdict", "severity", "review", "split", "purpose", "controls", "controls_ok"):
            assert isinstance(column, StateColumn), f"{table.__name__}.{name}"


def test_the_help_of_a_column_of_states_lists_each_as_its_badge_says_it() -> None:
    html = str(states.state_help("State", "group", "here"))
    assert 'popovertarget="states-group-here"' in html and 'id="states-group-here" popover role="note"' in html
    assert "<b>trained</b> A step was trained on it." in html
    assert html.count("helptip__state") == len(MEANINGS["group"])
    assert states.listed("verdict rollout").count("<b>infra error</b>") == 1
    for kind, labels in LABELS.items():
        assert labels.keys() <= MEANINGS[kind].keys()


def test_a_sortable_head_has_a_mark_beside_its_link_and_another_is_the_button() -> None:
    request = RequestFactory().get("/evaluations/", {"sort": "-state"})
    table = Small([{"state": "running", "pass1": 1, "created_at": 1}], order_by="-state")
    head = render_to_string("partials/table.html", {"table": table, "request": request}, request).partition("</thead>")[
        0
    ]
    assert re.search(
        r'class="desc"\s+href="\?sort=state">State</a>\s*<button type="button" class="term term--mark"', head
    )
    assert 'popovertarget="head-state" aria-label="About State">?</button>' in head
    assert '<button type="button" class="term" popovertarget="head-pass1">pass@1</button>' in head
    assert 'popovertarget="head-created-at"' not in head
    ids = re.findall(r'id="([^"]+)"', head)
    assert len(ids) == len(set(ids))


def test_columns_of_metrics_say_what_the_metric_means() -> None:
    table = RunTable([], chosen=["metric:tokens/trained", *COLUMN_METRICS])
    for column in table.columns:
        metric = COLUMN_METRICS.get(column.name) or column.name.removeprefix("metric:")
        if metric in METRICS:
            assert column_help(column)[1].lower().startswith(METRICS[metric].meaning[:10].lower())
            assert isinstance(column.column, django_tables2.Column)
