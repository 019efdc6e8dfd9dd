"""What a run keeps on disk, on its System tab, and the form that deletes it."""

from __future__ import annotations

from django.http import HttpResponse
from django.views.decorators.http import require_POST, require_safe

from composer_web.runs import selectors
from composer_web.runs.files import services
from composer_web.ui.pages import PageRequest, act, page, show


@require_safe
@page()
def run_files(request: PageRequest, pk: int) -> HttpResponse:
    """Sizes by kind, and what a deletion with the options `final=` and `annotated=` would take away."""
    run = selectors.get_run(pk)
    options = {"final": "final" in request.GET, "annotated": "annotated" in request.GET}
    plans = services.plans(run, **options)
    context = {
        "run": run,
        "plans": plans,
        "chosen": request.GET.getlist("kinds"),
        "total": sum(plan.amount.bytes for plan in plans),
        "deletions": services.deletions(run),
        **options,
    }
    return show(request, "runs/_files.html", context)


@require_POST
@page("operator")
def delete_files(request: PageRequest, pk: int) -> HttpResponse:
    run = selectors.get_run(pk)
    return act(
        request,
        lambda: services.delete(
            run=run,
            kinds=request.POST.getlist("kinds"),
            final="final" in request.POST,
            annotated="annotated" in request.POST,
            actor=request.user,
        ),
        done="A worker deletes the files. This tab shows how far it is.",
        to="runs:system",
        pk=pk,
    )
