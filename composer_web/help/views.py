"""Files of the documentation site, for everybody who is logged in.

The site has no inline scripts (`scripts.docs.scripts`), so scripts are as restricted as on all other pages. Styles are
not: the theme's search inserts a style element, whose hash changes with each release of the theme. The site shows no
content of users.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path

from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.http import Http404, HttpResponse, HttpResponseBase, HttpResponseNotModified
from django.shortcuts import redirect
from django.utils.http import http_date
from django.views.decorators.http import require_safe
from django.views.static import was_modified_since

from composer_web.env import REPOSITORY
from composer_web.ui.pages import PageRequest
from composer_web.ui.pages import page as for_people

SITE = REPOSITORY / "build" / "help"


@require_safe
@csp_update({"style-src": [UNSAFE_INLINE]})
@for_people()
def help_page(request: PageRequest, page: str) -> HttpResponseBase:
    """A page or file of the site. 404 when there is none, or when the site is not built."""
    if not (SITE / "index.html").is_file():
        raise Http404("the help pages are not built; run `make docs` on the server")
    file = found(page)
    if file.is_dir():
        if page and not page.endswith("/"):
            return redirect("help:page", page=f"{page}/")
        file /= "index.html"
    if not file.is_file():
        raise Http404(f"there is no help page {page!r}")
    changed = file.stat().st_mtime
    if not was_modified_since(request.headers.get("if-modified-since"), changed):
        return HttpResponseNotModified()
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    # Whole, not streamed: Django reads a synchronous stream whole under ASGI and warns each time.
    return HttpResponse(
        file.read_bytes(),
        content_type=kind,
        headers={"Last-Modified": http_date(changed), "Cache-Control": "private, no-cache"},
    )


def found(page: str) -> Path:
    """The file that an address names. Raises Http404 for one outside of the site."""
    try:
        file = (SITE / page).resolve()
    except ValueError as error:  # a NUL
        raise Http404("there is no such help page") from error
    if not file.is_relative_to(SITE):
        raise Http404("there is no such help page")
    return file
