"""Messages of ours on a page: what stands between backticks is code, and nothing of a message is markup."""

from __future__ import annotations

from django.template import Context, Template
from hypothesis import given
from hypothesis import strategies as st

from composer_web.ui.templatetags.ui import told


def test_commands_are_code() -> None:
    assert told("start it with `make up`, or `make demo`") == (
        "start it with <code>make up</code>, or <code>make demo</code>"
    )
    assert told("one ` alone") == "one ` alone"


@given(st.text(alphabet="<>&\"'`ab\n"))
def test_nothing_of_a_message_is_markup(text: str) -> None:
    shown = told(text).replace("<code>", "").replace("</code>", "")
    assert "<" not in shown
    assert ">" not in shown


def test_what_was_escaped_before_is_not_again() -> None:
    page = Template("{% load ui %}{{ errors|join:' '|told }}").render(Context({"errors": ["a < b", "run `x > y`"]}))
    assert page == "a &lt; b run <code>x &gt; y</code>"
