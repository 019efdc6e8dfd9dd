"""Tables and forms are drawn without the library's work a cell: what comes out is what the libraries draw."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django import forms
from django.db import transaction
from django.forms.renderers import DjangoTemplates, get_default_renderer
from django.template import Context, Template
from django.utils.safestring import mark_safe
from django_tables2 import Column
from django_tables2.rows import BoundRow

from composer_web.ui.tables import Table
from composer_web.ui.widgets import Renderer
from tests.browser import benchmark, seed
from tests.web import seeded

LOUD = {"td": {"class": "strong loud"}}
LISTS = (
    "/runs/?cols="
    + "state,kind,progress,curve,pass1,policy_in,tags,best,entropy,wall,seed,code_version,notes,created_by",
    "/runs/sweeps/",
    "/runs/studies/",
    "/rollouts/",
    "/findings/",
    "/tasks/",
    "/suites/",
    "/suites/train/",
    "/generators/",
    "/imports/",
    "/environments/",
    "/policies/",
    "/evaluations/",
    "/evaluations/?cols=policy,pass1,history,best",
    "/evaluations/releases/",
    "/review/",
    "/drafts/",
    "/gateway/sessions/",
    "/alerts/",
    "/alerts/deliveries/",
    "/audit/",
)
BY_THE_LIBRARY = Template(
    "{% for row in table.paginated_rows %}<tr>{% for column, cell in row.items %}<td{% if column.attrs.td.class %}"
    ' class="{{ column.attrs.td.class }}"{% endif %}>{{ cell }}</td>{% endfor %}</tr>{% if not forloop.last %}\n{% endif %}'
    "{% endfor %}"
)


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[seed.World]:
    """The seeded product with something on every list."""
    with django_db_blocker.unblock(), transaction.atomic():  # type: ignore[attr-defined]
        made = seeded.few()
        benchmark.benchmark(made.people)
        seeded.the_rest(made.people["operator"], "Quartz")
        yield made
        transaction.set_rollback(True)


PASSING = re.compile(r"ETA [^<]+|(<time data-since=[^>]*>)[^<]*")
"""Seconds may pass between the two."""


@pytest.mark.django_db
@pytest.mark.timeout(900)
def test_rows_are_those_that_the_library_draws(world: seed.World) -> None:
    visitor = seeded.client(world, "admin")
    drawn = 0
    for address in LISTS:
        table = visitor.get(address).context["table"]
        table.context = Context()
        theirs = BY_THE_LIBRARY.render(Context({"table": table}))
        assert PASSING.sub(r"\1", table.body()) == PASSING.sub(r"\1", theirs), address
        drawn += theirs.count("<td")
    assert drawn > 300, "most lists have rows"


class People(Table):
    """What no list of the product does: values that are not text, a link without address, an argument of each kind."""

    name = Column(linkify=lambda record: None if record["age"] is None else f"/?q=<{record['name']}>&n=1", attrs=LOUD)
    age = Column(default="<none>")
    born = Column(accessor="dates__born")
    gone = Column(accessor="dates__gone", empty_values=())
    tags = Column(empty_values=([],), default="–")
    row = Column(accessor="name")

    def render_row(
        self, value: str, record: dict[str, object], bound_row: BoundRow, column: Column, **rest: object
    ) -> str:
        return f"{value} {record['age']} {bound_row.record is record} {column.orderable} {sorted(rest)}"


def test_cells_of_any_value_are_those_of_the_library() -> None:
    born = datetime(2001, 2, 3, 4, 5, tzinfo=UTC)
    rows = [
        {"name": "<b>O'Neill</b>", "age": 41.5, "dates": {"born": born}, "tags": ["<i>"]},
        {"name": mark_safe("<b>safe</b>"), "age": None, "dates": {}, "tags": []},
        {"name": "", "age": 0, "dates": None, "tags": ()},
    ]
    table = People(rows)
    table.context = Context()
    assert table.body() == BY_THE_LIBRARY.render(Context({"table": table}))
    assert "&lt;b&gt;O&#x27;Neill" in table.body() and "<b>safe</b>" in table.body()


def test_a_column_that_asks_for_what_is_not_given_is_a_mistake() -> None:
    class Odd(Table):
        name = Column()

        def render_name(self, value: str, colour: str) -> str:
            return value + colour

    with pytest.raises(TypeError, match="column name: nothing is given as colour"):
        Odd([{"name": "a"}]).body()


class Questions(forms.Form):
    text = forms.CharField(initial='<"quoted"> & more', max_length=40, help_text="said")
    count = forms.IntegerField(min_value=1, max_value=9, initial=3)
    rate = forms.FloatField(initial=0.5)
    on = forms.BooleanField(initial=True)
    off = forms.BooleanField(required=False)
    day = forms.DateField(
        initial=datetime(2026, 1, 2, tzinfo=UTC).date(), widget=forms.DateInput(attrs={"type": "date"})
    )
    secret = forms.CharField(widget=forms.PasswordInput)
    address = forms.URLField(required=False, assume_scheme="https")
    mail = forms.EmailField(required=False, disabled=True)
    hidden = forms.CharField(widget=forms.HiddenInput, initial="x")
    one = forms.ChoiceField(
        choices=[("", "any"), ("a", "A & B"), ("Group <1>", [("c", mark_safe("<i>c</i>")), (4, 4)])]
    )
    many = forms.MultipleChoiceField(choices=[("a", "A"), ("b", "B")], initial=["b"])
    yes = forms.NullBooleanField()
    around = forms.ChoiceField(choices=[("a", "A")], widget=forms.RadioSelect)
    long = forms.CharField(widget=forms.Textarea(attrs={"rows": 3, "spellcheck": False, "data-x": True}))


@pytest.mark.parametrize("data", [None, {"text": "<x>", "one": "c", "many": ["a"], "count": "no", "yes": "true"}])
def test_inputs_are_those_that_django_draws(data: dict[str, object] | None) -> None:
    assert isinstance(get_default_renderer(), Renderer), "the setting"
    ours, theirs = Questions(data, renderer=Renderer()), Questions(data, renderer=DjangoTemplates())
    for mine, his in zip(ours, theirs, strict=True):
        assert lines(mine) == lines(his), mine.name
    assert lines(ours.as_div()) == lines(theirs.as_div())


def lines(drawn: object) -> list[str]:
    """Without indentation and empty lines, of which Django's templates leave some."""
    return [line.strip() for line in str(drawn).splitlines() if line.strip()]
