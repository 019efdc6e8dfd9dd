"""Saves and deletes views of the lists. Everybody who sees a list may: it changes nothing but their own."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from composer_web.core.errors import UserError
from composer_web.ui import saved_views
from composer_web.ui.pages import PageRequest, page, refuse


@require_POST
@page()
def view_save(request: PageRequest) -> HttpResponse:
    given = request.POST
    table, query = given.get("table", ""), given.get("query", "")
    name, shared = given.get("name", ""), "shared" in given
    try:
        kept = saved_views.save(table=table, name=name, query=query, shared=shared, owner=request.user)
    except UserError as error:
        return refuse(request, error, to="ops:home")
    messages.success(request, "View saved.")
    return redirect(f"{saved_views.page_of(table)}?{kept.query}")


@require_POST
@page()
def view_delete(request: PageRequest, pk: int) -> HttpResponse:
    table = saved_views.delete(pk=pk, actor=request.user)
    messages.success(request, "View deleted.")
    return redirect(saved_views.page_of(table))
