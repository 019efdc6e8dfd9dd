"""All addresses of the product, from the resolver and from the routers of the API, with the rule of each."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from django.apps import apps
from django.urls import URLPattern, URLResolver, get_resolver
from ninja.constants import NOT_SET
from ninja.security import HttpBearer

from composer_web.accounts import url_resources
from composer_web.accounts.services import SCOPES
from composer_web.api.auth import needs
from composer_web.api_root import api
from composer_web.gateway.http.api import GatewayToken

KEY = re.compile(r"<(?:(?P<kind>\w+):)?(?P<name>\w+)>|\(\?P<(?P<old>\w+)>[^()]*\)|\{(?:\w+:)?(?P<api>\w+)\}")
PLAIN = {
    "action": "nothing",
    "form": "jsonl",
    "format": "csv",
    "part": "nothing",
    "page": "index.html",
    "number": "1",
    "batch": str(uuid.UUID(int=1)),
}

OF_ALL = {
    "alerts/deliveries/": "alerts.Delivery", "alerts/rules/": "alerts.Rule", "alerts/webhooks/": "alerts.Webhook",
    "people/": "accounts.User",
}  # fmt: skip
"""Begin of a route → what `pk` is there: of the installation, not of a project."""


@dataclass(frozen=True)
class Address:
    """`role` is the least that the view or operation asks for; None for those that do not ask by `page` or `needs`."""

    method: str
    route: str
    role: str | None
    own: bool = False
    """The gateway's own: a token with the scope `gateway`, and only what its owner recorded."""

    def __str__(self) -> str:
        return f"{self.method} {self.route}"

    @property
    def keys(self) -> list[str]:
        return [str(found["name"] or found["old"] or found["api"]) for found in KEY.finditer(self.route)]

    @property
    def objects(self) -> list[url_resources.Line]:
        """What of a project it names. Raises NoOwner for a key that no line of the table explains."""
        lines = [url_resources.line_of(self.route, key) for key in self.keys]
        return [line for line in lines if line is not None]

    def path(self, project: int) -> str | None:
        """With objects of this project put in; None while there is none of them."""
        values = dict.fromkeys(self.keys, "1") | PLAIN
        for _, key, label, field in self.objects:
            model = apps.get_model(label)
            rows = model._base_manager.filter(**{url_resources.PATHS.get(label, "project_id"): project})
            found = rows.order_by("pk").values_list(field, flat=True).first()
            if found is None:
                return None
            values[key] = str(found)
        if begin := next((begin for begin in OF_ALL if self.route.startswith(begin)), None):
            values["pk"] = str(
                apps.get_model(OF_ALL[begin])._base_manager.order_by("pk").values_list("pk", flat=True).first()
            )
        path = KEY.sub(lambda m: values[str(m["name"] or m["old"] or m["api"])], self.route)
        return "/" + path.replace("\\.", ".").lstrip("^").rstrip("$")


def pages() -> Iterator[Address]:
    """Every address of the resolver but the API's; each once for GET and once for POST."""
    for route, view in _walk(get_resolver(), ""):
        if route.startswith("^"):
            continue  # old addresses, which only redirect
        if not route.startswith("api/v1/") or route == "api/v1/docs":
            for method in ("GET", "POST"):
                yield Address(method, route, getattr(view, "role", None))


def _walk(resolver: URLResolver, begin: str) -> Iterator[tuple[str, object]]:
    for entry in resolver.url_patterns:
        route = begin + str(entry.pattern)
        if isinstance(entry, URLPattern):
            yield route, entry.callback
        else:
            yield from _walk(entry, route)


def operations() -> Iterator[Address]:
    """Every operation of the API."""
    for prefix, router in api._routers:
        for path, view in router.path_operations.items():
            for operation in view.operations:
                given = operation.auth_param
                asked = [] if given is None else needs("read") if given is NOT_SET else given
                bearer = next((one for one in asked if isinstance(one, HttpBearer)), None)
                scope = getattr(next(iter(asked), None), "scope", "read" if bearer else None)
                for method in operation.methods:
                    yield Address(
                        method,
                        f"api/v1{prefix}{path}".replace("//", "/"),
                        None if scope is None else str(SCOPES[scope]),
                        own=isinstance(bearer, GatewayToken),
                    )
