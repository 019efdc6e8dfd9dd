"""Search of the command palette."""

from __future__ import annotations

import re

from django.http import HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from composer_web.runs import selectors
from composer_web.runs.models import Run
from composer_web.system import search as searching
from composer_web.ui.pages import PageRequest, page

MAX_TEXT = 100
OF_RUN = re.compile(r"^/runs/(\d{1,17})/")


@require_safe
@page()
def search(request: PageRequest) -> HttpResponse:
    """`?q=` the text, `&here=` the address of the page that asks: {groups: [{title, items: [{title, icon, url, …}]}]}."""
    text = request.GET.get("q", "")[:MAX_TEXT].replace("\x00", "").strip()
    place = OF_RUN.match(request.GET.get("here", ""))
    here: Run | None = selectors.whole_runs().filter(pk=int(place[1])).first() if place else None
    return JsonResponse(searching.as_json(searching.search(request.user, text, here=here)))
