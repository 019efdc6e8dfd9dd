"""The page of what is promoted: canary, rollback, the gate and the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_safe, require_POST

from composer_web.accounts.permissions import may_in
from composer_web.evals.http import starting_views as evals
from composer_web.evals.models import Release
from composer_web.gateway.sessions import canary
from composer_web.ui import form_parsing
from composer_web.core.errors import UserError
from composer_web.ui.pages import PageRequest, act, page, show
from composer_web.policies.promotion import gate, services as promotion
from composer_web.policies import selectors
from composer_web.tasks.models import Suite

MAX_SHOWN = 50


@require_safe
@page()
def promotion_page(request: PageRequest) -> HttpResponse:
    """`?policy=NAME@VERSION` chooses that version in the form. The live part is what is served and how a canary does."""
    current = promotion.current()
    served: dict[str, Any] = {
        "current": current,
        "previous": promotion.previous(),
        "comparison": canary.of(current) if current else None,
    }
    if request.headers.get("HX-Request"):
        return show(request, "policies/_served.html", served)
    context = {
        **served,
        "rules": gate.rules(promotion.CHANNEL),
        "history": promotion.history()[:MAX_SHOWN],
        "tab": "promotion",
    }
    if request.user.may("operator"):
        chosen, references = request.GET.get("policy", "").strip(), selectors.references()
        if chosen and chosen not in references:
            references.insert(0, chosen)  # the only version of a policy is offered by the policy's name
        context |= {
            "policies": references,
            "suites": list(Suite.objects.order_by("name").values_list("name", flat=True)),
            "benchmarks": list(
                Release.objects.order_by("benchmark").values_list("benchmark", flat=True).distinct("benchmark")
            ),
            "chosen": chosen,
            **(_preview(request, chosen) if chosen else {}),
        }
    return show(request, "policies/promotion.html", context)


@require_safe
@page("operator")
def promotion_preview(request: PageRequest) -> HttpResponse:
    """Whether `?policy=NAME@VERSION` would pass the gate, rule by rule."""
    chosen = request.GET.get("policy", "")
    return show(request, "policies/_preview.html", _preview(request, chosen) if chosen else {})


@dataclass(frozen=True)
class Judged:
    """A rule's outcome, and where an evaluation that it lacks can be asked for."""

    outcome: gate.Outcome
    policy: str = ""
    version: int = 0
    release: Release | None = None


def _preview(request: PageRequest, reference: str) -> dict[str, Any]:
    try:
        found = promotion.preview(reference)
    except UserError as error:
        return {"wrong": str(error)}
    return {"preview": found, "judged": [_judged(request, outcome) for outcome in found.outcomes], **evals.DEFAULTS}


def _judged(request: PageRequest, outcome: gate.Outcome) -> Judged:
    """The form is offered to who may use it: an operator of the project that the policy belongs to."""
    if not outcome.missing or outcome.under_way:
        return Judged(outcome)
    name, _, version = outcome.missing.partition("@")
    if not may_in(request.user, selectors.get_policy(name).project_id, "operator"):
        return Judged(outcome)
    release = gate.newest_release(outcome.rule) if outcome.rule.benchmark else None
    return Judged(outcome, policy=name, version=int(version), release=release)


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
                share = form_parsing.number(request, "share") / 100.0
                return promotion.canary(reference=reference, share=share, note=note, actor=request.user)
            case "end":
                return promotion.end_canary(note=note, actor=request.user)
            case "rollback":
                return promotion.rollback(note=note, actor=request.user)
            case other:
                raise UserError("what", f"promote, canary, end or rollback, not {other[:40]!r}")

    return act(request, change, done="Saved. New sessions are served accordingly.", to="policies:promotion")


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
                    "min_score": _share(request, "min_score"),
                    "max_drop": _share(request, "max_drop"),
                    "samples": form_parsing.whole(request, "samples", 1),
                }
            )
        return gate.set_rules(channel=promotion.CHANNEL, wanted=rules, actor=request.user)

    return act(request, change, done="The gate is changed.", to="policies:promotion")


def _share(request: PageRequest, name: str) -> float | None:
    """A share that the form asks for in per cent."""
    found = form_parsing.optional_number(request, name)
    return None if found is None else found / 100.0
