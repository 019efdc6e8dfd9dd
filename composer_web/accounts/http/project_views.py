"""Views of projects: list, selection, members and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from composer_web.accounts import projects
from composer_web.accounts.models import DEFAULT_PROJECT, Role
from composer_web.accounts.permissions import CHOSEN, reach
from composer_web.core.errors import UserError
from composer_web.ui.pages import PageRequest, act, page, refuse, show


@require_safe
@page()
def project_list(request: PageRequest) -> HttpResponse:
    context = {"may_create": request.user.role == Role.ADMIN, "places": reach(request.user)}
    return show(request, "accounts/projects.html", context)


@require_POST
@page()
def project_new(request: PageRequest) -> HttpResponse:
    if request.user.role != Role.ADMIN:
        raise PermissionDenied("admins of the installation make projects")
    given = request.POST
    try:
        made = projects.create_project(
            slug=given.get("slug", "").strip(), name=given.get("name", ""), actor=request.user
        )
    except UserError as error:
        return refuse(request, error, to="accounts:projects")
    messages.success(request, f"“{made.name}” is made. Add its members.")
    return redirect("accounts:project", slug=made.slug)


@require_POST
@page()
def project_choose(request: PageRequest) -> HttpResponse:
    """Select the project of the user's pages. URLs of objects in other projects still work."""
    wanted = request.POST.get("project", "")
    place = next((place for place in reach(request.user) if place["slug"] == wanted), None)
    if place is None:
        raise Http404("there is no such project of yours")
    request.session[CHOSEN] = place["id"]
    back = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return redirect(back if safe else "ops:home")


@require_safe
@page()
def project_detail(request: PageRequest, slug: str) -> HttpResponse:
    project = projects.get_project(slug)
    context = {
        "shown": project,
        "members": project.memberships.select_related("user"),
        "roles": Role.choices,
        "may_admin": request.user.may(Role.ADMIN),
        "is_default": project.pk == DEFAULT_PROJECT,
    }
    return show(request, "accounts/project.html", context)


@require_POST
@page("admin")
def project_change(request: PageRequest, slug: str, action: str) -> HttpResponse:
    """`action` is settings, member or remove."""
    project, given, actor = projects.get_project(slug), request.POST, request.user
    name = given.get("username", "")
    found: dict[str, tuple[Callable[[], Any], str]] = {
        "settings": (
            lambda: projects.change_project(
                project=project,
                name=given.get("name", ""),
                open=given.get("open") == "on",
                library=given.get("library") == "on",
                archived=given.get("archived") == "on",
                actor=actor,
            ),
            "Project settings saved.",
        ),
        "member": (
            lambda: projects.set_member(project=project, username=name, role=given.get("role", ""), actor=actor),
            f"{name} is a member.",
        ),
        "remove": (
            lambda: projects.remove_member(project=project, username=name, actor=actor),
            f"{name} is no longer a member.",
        ),
    }
    if action not in found:
        raise Http404(f"there is no action {action!r}")
    run, done = found[action]
    return act(request, run, done=done, to="accounts:project", slug=slug)
