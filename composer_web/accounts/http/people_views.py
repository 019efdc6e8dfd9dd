"""Views of accounts and invitations, and the public page of an invitation link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from composer_web.accounts import people, projects
from composer_web.accounts.models import Project, Role
from composer_web.core.errors import NotFound, UserError
from composer_web.env import env
from composer_web.ui.pages import PageRequest, act, page, refuse, show


def link_of(request: HttpRequest, secret: str) -> str:
    """Invitation URL for the recipient."""
    base = env().public_url.rstrip("/")
    return f"{base}{people.PATH}{secret}" if base else request.build_absolute_uri(f"{people.PATH}{secret}")


@require_safe
@page("admin")
def person_list(request: PageRequest) -> HttpResponse:
    return _listed(request)


def _listed(request: PageRequest, **more: Any) -> HttpResponse:
    context = {
        "people": people.people(),
        "invitations": people.invitations(),
        "roles": Role.choices,
        "rooms": Project.objects.filter(archived_at=None).order_by("name"),
        "mail": bool(env().email_url),
    }
    answer = show(request, "accounts/people.html", {**context, **more})
    answer["Cache-Control"] = "no-store"
    return answer


@require_http_methods(["GET", "HEAD", "POST"])
@page("admin")
def person_invite(request: PageRequest) -> HttpResponse:
    """The link appears in this response only. Its forms lead back to the list."""
    if request.method != "POST":
        return redirect("accounts:people")
    given = request.POST
    try:
        made, secret = people.invite(
            actor=request.user,
            username=given.get("username", ""),
            role=given.get("role", ""),
            email=given.get("email", ""),
            project=given.get("project", ""),
            project_role=given.get("project_role", ""),
        )
    except UserError as error:
        return refuse(request, error, to="accounts:people")
    link, sent = link_of(request, secret), False
    try:
        sent = people.send(made, link)
    except UserError as error:
        messages.error(request, str(error))
    return _listed(request, made=made, link=link, sent=sent)


@require_POST
@page("admin")
def person_withdraw(request: PageRequest, number: int) -> HttpResponse:
    row = people.invitations().filter(pk=number).first()
    if row is None:
        raise NotFound("open invitation", number)
    return act(
        request,
        lambda: people.withdraw(invitation=row, actor=request.user),
        done=f"The invitation of {row.username} is withdrawn.",
        to="accounts:people",
    )


@require_POST
@page("admin")
def person_change(request: PageRequest, action: str) -> HttpResponse:
    """`action` is role, member, disable or enable."""
    given, actor = request.POST, request.user
    user = people.get_person(given.get("username", ""))
    name, role = user.username, given.get("role", "")
    found: dict[str, tuple[Callable[[], Any], str]] = {
        "role": (lambda: people.change_role(user=user, role=role, actor=actor), f"{name} is now {role}."),
        "member": (lambda: _member(given.get("project", ""), name, role, actor), f"{name} has the role {role} there."),
        "disable": (lambda: people.disable(user=user, actor=actor), f"{name} is logged out, and no token works."),
        "enable": (lambda: people.enable(user=user, actor=actor), f"{name} may log in again."),
    }
    if action not in found:
        raise Http404(f"there is no action {action!r}")
    run, done = found[action]
    return act(request, run, done=done, to="accounts:people")


def _member(slug: str, username: str, role: str, actor: Any) -> None:
    projects.set_member(project=projects.get_project(slug), username=username, role=role, actor=actor)


@sensitive_post_parameters("password", "again")
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest) -> HttpResponse:
    """Public page of the link: choose a password, then log in."""
    secret = (request.POST if request.method == "POST" else request.GET).get("code", "")[:200]
    invitation, problem = people.invited(secret), ""
    if invitation is not None and request.method == "POST":
        password = request.POST.get("password", "")
        if password != request.POST.get("again", ""):
            problem = "The two passwords differ."
        else:
            try:
                user = people.accept(secret=secret, password=password)
            except UserError as error:
                problem = str(error)
            else:
                messages.success(request, f"The account {user.username} is made. Log in with your password.")
                return redirect("accounts:login")
    status = 404 if invitation is None else 422 if problem else 200
    context = {"invitation": invitation, "code": secret, "problem": problem}
    answer = render(request, "accounts/join.html", context, status=status)
    answer["Cache-Control"] = "no-store"
    answer["Referrer-Policy"] = "no-referrer"
    return answer
