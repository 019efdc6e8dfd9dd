"""View of sandbox fidelity: properties that reveal a sandbox."""

from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_POST, require_safe

from composer_web.system import fidelity
from composer_web.ui.pages import Figure, PageRequest, act, page, show


@require_safe
@page()
def fidelity_page(request: PageRequest) -> HttpResponse:
    """Latest measurement of each backend."""
    measured = [(one, _figures(one)) for one in fidelity.kept()]
    template = "ops/_fidelity.html" if request.headers.get("HX-Request") else "ops/fidelity.html"
    return show(request, template, {"measured": measured, "under_way": fidelity.under_way()})


@require_POST
@page("operator")
def fidelity_measure(request: PageRequest) -> HttpResponse:
    """Request a new measurement from a build worker."""
    done = "A build worker measures its sandboxes; the page shows the result in about half a minute."
    return act(request, fidelity.request, done=done, to="ops:fidelity")


def _figures(one: fidelity.Kept) -> list[Figure]:
    if one.result is None:
        return []
    result = one.result
    tells = result.verdict.tells
    cheap = sum(tell.effort == "cheap" for tell in tells)
    early, curious = result.early, result.curious
    return [
        Figure("Fidelity score", f"{result.verdict.score:.0f}", "of 100", "weighted share that looks like the machine"),
        Figure("Tells", str(len(tells)), f"of {result.verdict.facets}", f"{cheap} cheap to fix"),
        Figure(
            "First turns",
            f"{early.auc:.2f}",
            "AUC",
            f"{early.auc_without_home:.2f} without the home; {early.at_chance()} of {len(early.commands)} commands tell nothing",
        ),
        Figure(
            "Suspicious agent",
            f"{curious.auc:.2f}",
            "AUC",
            f"{curious.at_chance()} of {len(curious.commands)} commands",
        ),
        Figure("Checkouts", str(result.checkouts), "", f"measured in {result.seconds:.0f} s"),
    ]
