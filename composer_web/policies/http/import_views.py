"""The form that imports a model, and the imports under way."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_POST, require_safe

from composer_web.policies.imports import orders
from composer_web.ui.pages import PageRequest, act, page, show
from trainer.model_import import RENDERERS, shipped_templates


def context_of() -> dict[str, Any]:
    """Choices of the form, and the imports that the page shows."""
    return {**_under_way(), "templates": shipped_templates(), "renderers": RENDERERS}


def _under_way() -> dict[str, Any]:
    found = orders.of_page()
    return {"imports": found, "importing": any(order.open for order in found)}


@require_safe
@page()
def imports(request: PageRequest) -> HttpResponse:
    return show(request, "policies/_imports.html", _under_way())


@require_POST
@page("operator")
def policy_import(request: PageRequest) -> HttpResponse:
    given = request.POST
    return act(
        request,
        lambda: orders.ask(
            name=given.get("name", ""),
            path=given.get("path", ""),
            template=given.get("own_template", "").strip() or given.get("template", ""),
            renderer=given.get("renderer", "") or "auto",
            description=given.get("description", ""),
            actor=request.user,
        ),
        done="The import is on its way; the policy appears here.",
        to="policies:list",
    )
