"""Markdown of reports as HTML that cannot do anything: raw HTML is shown as it is written, pictures become links (they
would tell another host who reads), and links lead to web pages, mail or this product only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

SAFE_LINK = re.compile(r"(https?:|mailto:|/(?!/)|#|\?)", re.IGNORECASE)
DEEPEST = 6


def _heading(tokens: Sequence[Token], at: int, options: OptionsDict, closing: bool) -> str:
    level = min(DEEPEST, int(tokens[at].tag[1:]) + 1)  # the page's own heading is the first
    return f"</h{level}>\n" if closing else f"<h{level}>"


def _renderer() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")
    made.validateLink = lambda url: bool(SAFE_LINK.match(url))  # type: ignore[method-assign]
    made.add_render_rule("heading_open", lambda self, tokens, at, options, env: _heading(tokens, at, options, False))
    made.add_render_rule("heading_close", lambda self, tokens, at, options, env: _heading(tokens, at, options, True))
    made.add_render_rule("link_open", _link)
    made.add_render_rule("table_open", lambda *_: '<table class="table">\n')
    made.add_render_rule("th_open", _cell)
    made.add_render_rule("td_open", _cell)
    return made


def _link(self: object, tokens: Sequence[Token], at: int, options: OptionsDict, env: object) -> str:
    tokens[at].attrSet("rel", "noopener nofollow")
    rendered: str = self.renderToken(tokens, at, options, env)  # type: ignore[attr-defined]
    return rendered


def _cell(self: object, tokens: Sequence[Token], at: int, options: OptionsDict, env: object) -> str:
    """Alignment as a class: the content policy refuses inline style."""
    token = tokens[at]
    return f'<{token.tag} class="num">' if "right" in str(token.attrs.get("style", "")) else f"<{token.tag}>"


_MARKDOWN = _renderer()


def render(text: str) -> SafeString:
    return mark_safe(_MARKDOWN.render(text))  # noqa: S308 (the renderer escapes; raw HTML is off)
