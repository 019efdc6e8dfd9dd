"""Commands that do what a page does, to be pasted into a shell: with curl, and with the command line."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from django.http import HttpRequest

from composer_web.env import env

NOT_FILTERS = ("page", "sort", "cols")
"""Parameters of a list's address that narrow nothing."""
END = "EOF"


@dataclass(frozen=True)
class Snippet:
    curl: str
    opencomposer: str


ORIGIN = "{origin}"
"""Where the browser has the page from, which js/copy.js puts in: a part that is pushed is rendered without a request."""


def address(request: HttpRequest | None) -> str:
    """Where people reach the product."""
    return env().public_url.rstrip("/") or (request.build_absolute_uri("/").rstrip("/") if request else ORIGIN)


def post(base: str, path: str, body: str) -> str:
    """A POST of JSON. The body is the input, so that nothing in it is the shell's."""
    return (
        f"curl --fail-with-body -X POST {shlex.quote(f'{base}/api/v1{path}')} \\\n"
        '  -H "Authorization: Bearer $OPENCOMPOSER_TOKEN" -H "Content-Type: application/json" \\\n'
        f"  --data-binary @- <<'{END}'\n{body}\n{END}\n"
    )


def command(base: str, arguments: str, text: str = "") -> str:
    """A call of the command line; `text` is its input."""
    call = f"OPENCOMPOSER_URL={shlex.quote(base)} opencomposer {arguments}"
    return f"{call} <<'{END}'\n{text.rstrip()}\n{END}\n" if text else f"{call}\n"


def export(base: str, query: str) -> Snippet:
    """The export of a list. `{what}` and `{format}` are what its form has chosen (js/copy.js puts them in)."""
    filters = [(name, value) for name, value in parse_qsl(query) if name not in NOT_FILTERS]
    body = json.dumps({"what": "{what}", "format": "{format}", "query": urlencode(filters)})
    words = " ".join(["{what}", *(shlex.quote(f"{name}={value}") for name, value in filters)])
    return Snippet(
        curl=post(base, "/exports", body),
        opencomposer=command(base, f"exports create {words} --format {{format}} -o {{what}}.{{format}}"),
    )


def run(base: str, config: str, text: str, *, after: int | None = None) -> Snippet:
    """A run: its configuration as JSON, and as the text that the command line reads. `after` is the run that it starts after."""
    query, option = (f"&start_after={after}", f" --start-after {after}") if after is not None else ("", "")
    return Snippet(
        curl=post(base, f"/runs?start=true{query}", config),
        opencomposer=command(base, f"runs create - --start{option}", text),
    )
