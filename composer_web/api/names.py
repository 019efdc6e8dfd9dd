"""Refuses query parameters that an operation does not declare, for every operation of the API that reads."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

from django.http import HttpRequest
from pydantic import BaseModel

from composer_web.accounts.permissions import CHOSEN
from composer_web.ui.filters import WrongFilter


def refuse_unknown(view: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a view. A misspelt filter that is ignored gives a list that looks like its result.

    Lists with a FilterSet declare its filters as parameters. Every operation also takes the project.
    """
    known = frozenset(_declared(view))

    @functools.wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.method in ("GET", "HEAD"):
            allowed = known - (request.resolver_match.kwargs.keys() if request.resolver_match else set())
            for name in sorted(request.GET.keys() - allowed - {CHOSEN}):
                others = ", ".join(sorted(allowed)) or "none"
                raise WrongFilter(name, f"there is no filter {name[:80]!r}; there are: {others}")
        return view(request, *args, **kwargs)

    return checked


def _declared(view: Callable[..., Any]) -> Iterator[str]:
    """Names of the view's parameters; of a schema, those of its fields."""
    hints = get_type_hints(view)
    for name in inspect.signature(view).parameters:
        kind = hints.get(name)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from kind.model_fields
        elif name != "request":
            yield name
