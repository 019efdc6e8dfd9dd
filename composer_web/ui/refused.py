"""A form that was refused: what was typed is kept in the session for the next page, which fills the form again.

`js/refused.js` does the filling. Passwords, keys, tokens and files are never kept.
"""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpRequest

SESSION = "refused_form"
MAX_CHARACTERS = 1 << 20
"""Of all values together. The largest field, a chat template, may be as long; larger values are left out."""
SECRET = re.compile(r"(^|[_-])(password|again|secret|token|key|code|csrfmiddlewaretoken)($|[_-])", re.IGNORECASE)


def keep(request: HttpRequest, *, field: str = "") -> None:
    """Keep the posted values. `field` is the one that the error is about."""
    values: list[tuple[str, str]] = []
    room = MAX_CHARACTERS
    for name, texts in request.POST.lists():
        for text in texts:
            if not SECRET.search(name) and len(text) <= room:
                values.append((name, text))
                room -= len(text)
    request.session[SESSION] = {"path": request.path, "field": field, "values": values}


def take(request: HttpRequest) -> dict[str, Any] | None:
    """What was kept, once."""
    if SESSION not in request.session:
        return None
    kept: dict[str, Any] = request.session.pop(SESSION)
    return kept
