"""Form actions for policies behind endpoints."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from composer_web.core.errors import UserError
from composer_web.ui.pages import PageRequest, act, page, refuse
from composer_web.policies import endpoints, selectors

TEXTS = ("url", "effort", "limit_field")
PRICES = ("price_input", "price_output", "price_cached")


@require_POST
@page("operator")
def endpoint_add(request: PageRequest) -> HttpResponse:
    name = request.POST.get("name", "").strip()
    try:
        endpoints.add(
            name=name,
            description=request.POST.get("description", "")[:2000],
            key=request.POST.get("key", ""),
            model=request.POST.get("model", ""),
            actor=request.user,
            **_fields(request),
        )
    except UserError as error:
        return refuse(request, error, to="policies:list")
    messages.success(request, f"{name} can be evaluated; its key is stored encrypted and shown to nobody again.")
    return redirect("policies:detail", name=name)


@require_POST
@page("operator")
def endpoint_change(request: PageRequest, name: str) -> HttpResponse:
    policy = selectors.get_policy(name)
    key = request.POST.get("key", "")
    return act(
        request,
        lambda: endpoints.change(
            policy=endpoints.get(policy.name).policy, key=key or None, actor=request.user, **_fields(request)
        ),
        done="Changed; evaluations that have begun keep their prices.",
        to="policies:detail",
        name=name,
    )


def _fields(request: PageRequest) -> dict[str, Any]:
    """Values of the form. Raises UserError naming the field."""
    found: dict[str, Any] = {name: request.POST.get(name, "").strip() for name in TEXTS}
    found["limit_field"] = found["limit_field"] or "max_tokens"
    found["takes_temperature"] = "takes_temperature" in request.POST
    for name in PRICES:
        text = request.POST.get(name, "").strip()
        try:
            price = float(text) if text else None
        except ValueError:
            raise UserError(name, f"{name} is a number, not {text!r}") from None
        found[name] = price if name == "price_cached" else price or 0.0
    try:
        found["parameters"] = json.loads(request.POST.get("parameters", "").strip() or "{}")
    except (ValueError, RecursionError):
        raise UserError("parameters", 'more fields are one JSON object, for example {"top_p": 0.95}') from None
    return found
