"""The page of what is promoted: canary, rollback, the gate and the history."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_GET, require_POST

from composer_web.evals.models import Release
from composer_web.ops.errors import UserError
from composer_web.ops.pages import PageRequest, act, page, show
from composer_web.policies import gate, promotion, selectors
from composer_web.tasks.models import Suite

MOST_SHOWN = 50


@require_GET
@page()
def promotion_page(request: PageRequest) -> HttpResponse:
    context: dict[str, Any] = {
        "current": promotion.current(),
        "previous": promotion.previous(),
        "rules": gate.rules(promotion.CHANNEL),
        "history": promotion.history()[:MOST_SHOWN],
        "tab": "promotion",
    }
    if request.user.may("operator"):
        context |= {
            "policies": selectors.references(),
            "suites": list(Suite.objects.order_by("name").values_list("name", flat=True)),
            "benchmarks": list(
                Release.objects.order_by("benchmark").values_list("benchmark", flat=True).distinct("benchmark")
            ),
        }
    return show(request, "policies/promotion.html", context)


@require_POST
@page("operator")
def promotion_change(request: PageRequest) -> HttpResponse:
    """`what` is promote, canary, end or rollback."""
    note, reference = request.POST.get("note", ""), request.POST.get("policy", "")

    def change() -> object:
        match request.POST.get("what", ""):
            case "promote":
                return promotion.promote(reference=reference, note=note, actor=request.user)
            case "canary":
                share = _number(request, "share") / 100.0
                return promotion.canary(reference=reference, share=share, note=note, actor=request.user)
            case "end":
                return promotion.end_canary(note=note, actor=request.user)
            case "rollback":
                return promotion.rollback(note=note, actor=request.user)
            case other:
                raise UserError("what", f"promote, canary, end or rollback, not {other[:40]!r}")

    return act(request, change, done="Done; new sessions are served so from now on.", to="policies:promotion")


@require_POST
@page("operator")
def gate_change(request: PageRequest) -> HttpResponse:
    """Take the rule `remove` (from 1) away, or add one."""
    rules: list[object] = [rule.model_dump() for rule in gate.rules(promotion.CHANNEL)]

    def change() -> object:
        remove = request.POST.get("remove", "")
        if remove:
            if not remove.isdecimal() or not 1 <= int(remove) <= len(rules):
                raise UserError("remove", f"there is no rule {remove[:9]!r}")
            del rules[int(remove) - 1]
        else:
            kind, _, name = request.POST.get("on", "").partition(":")
            rules.append(
                {
                    "suite": name if kind == "suite" else "",
                    "benchmark": name if kind == "benchmark" else "",
                    "measure": request.POST.get("measure", "pass1"),
                    "least": _share(request, "least"),
                    "most_drop": _share(request, "most_drop"),
                    "samples": int(_number(request, "samples") if request.POST.get("samples") else 1),
                }
            )
        return gate.set_rules(channel=promotion.CHANNEL, wanted=rules, actor=request.user)

    return act(request, change, done="The gate is changed.", to="policies:promotion")


def _number(request: PageRequest, name: str) -> float:
    text = request.POST.get(name, "").strip()
    try:
        return float(text)
    except ValueError:
        raise UserError(name, f"{name} is a number, not {text[:40]!r}") from None


def _share(request: PageRequest, name: str) -> float | None:
    """A share that the form asks for in per cent."""
    return _number(request, name) / 100.0 if request.POST.get(name, "").strip() else None
