"""Decides which projects a user can access, and with which access a request runs. This is the only place for both."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import JSONObject
from django.http import HttpRequest

from composer_web.accounts import url_resources
from composer_web.accounts.access import Access, begin, current
from composer_web.accounts.models import DEFAULT_PROJECT, ApiToken, Membership, Project, Role, User
from composer_web.core.errors import Denied, NotFound

SAFE = ("GET", "HEAD", "OPTIONS")
CHOSEN = "project"
"""Session key and query parameter of the selected project."""

NOWHERE = -1
"""Id of no project: a user without projects sees nothing."""

Place = dict[str, Any]


def places_of(user: str) -> ArraySubquery:
    """`projects_of` the user in column `user` as an expression, so that log-in needs no extra query."""
    own = Membership.objects.filter(project=OuterRef("pk"), user=OuterRef(OuterRef(user))).values("role")[:1]
    row = JSONObject(
        id="id", slug="slug", name="name", open="open", library="library", archived="archived_at", role=Subquery(own)
    )
    return ArraySubquery(Project.objects.order_by("pk").values(json=row))


def with_places(users: QuerySet[User]) -> QuerySet[User]:
    return users.annotate(placed=places_of("pk"))  # type: ignore[no-redef]  # the attribute that it fills


def placed(user_id: int) -> list[Place]:
    user = with_places(User.objects.filter(pk=user_id)).first()
    return (user.placed or []) if user is not None else []


def projects_of(user: User) -> list[Place]:
    """Every project with this user's membership in it: id, slug, name, open, library, archived, role or None."""
    if user.placed is None:  # a log-in brings it along
        user.placed = placed(user.pk)
    return user.placed


def role_in(user: User, place: Place) -> str:
    """Role of a user in a project; empty for none. Installation admins are admins of every project."""
    if user.role == Role.ADMIN:
        return Role.ADMIN
    if place["archived"]:
        return ""
    roles = [role for role in (place["role"], user.role if place["open"] else None) if role]
    return max(roles, key=Role.values.index, default="")


def may_in(user: User, project: int | None, role: str) -> bool:
    """Whether a user other than the current one has at least `role` in a project, or by account without a project."""
    place = next((place for place in projects_of(user) if place["id"] == project), None)
    mine = role_in(user, place) if place else user.role if project is None else ""
    return bool(mine) and Role.values.index(mine) >= Role.values.index(role)


def reach(user: User) -> list[Place]:
    """Projects that a user may select, with their role. Archived ones come last, for admins only."""
    found = [{**place, "role": role_in(user, place)} for place in projects_of(user)]
    return sorted((place for place in found if place["role"]), key=lambda place: bool(place["archived"]))


def readable() -> list[int] | None:
    """Projects whose material may be named to whoever makes the request in progress; None for all of them.

    Managers keep the rows of other projects out of what is about one project. What is about the whole installation
    (`owners.INSTALLATION`) sees all rows, and asks here before it resolves a name or lists names.
    """
    now = current()
    if now is None:
        return None
    if now.scope is not None:
        return [now.scope, *now.libraries]
    user = with_places(User.objects.filter(pk=now.user_id)).first()
    if user is None or user.role == Role.ADMIN:
        return None
    shared = [place["id"] for place in projects_of(user) if place["library"] and not place["archived"]]
    return [*(place["id"] for place in reach(user)), *shared]


def enter(request: HttpRequest, user: User, token: ApiToken | None = None) -> Access:
    """Begin to act for `user`: in the project of the object in the address, else in the chosen one.

    Raises NotFound for an object of a project that the person does not reach, and for a choice that is none; Denied for
    the whole installation with a token of one project.
    """
    access = _access(request, user, token)
    begin(access)
    return access


def _access(request: HttpRequest, user: User, token: ApiToken | None) -> Access:
    match = request.resolver_match
    assert match is not None, "only views and operations enter"
    mine = reach(user)
    if token is not None and token.project_id is not None:
        mine = [place for place in mine if place["id"] == token.project_id]
    if url_resources.installation(match.route):
        if token is not None and token.project_id is not None and not (mine and url_resources.for_all(match.route)):
            raise Denied(
                "this is about the whole installation; the token is of one project only, use one without a project"
            )
        return Access(user.pk, user.role, mine[0]["id"] if mine else DEFAULT_PROJECT)
    here = _chosen(request, mine, token)
    if len(projects_of(user)) == 1:
        return Access(user.pk, here["role"], here["id"]) if here else Access(user.pk, "", DEFAULT_PROJECT)
    shared = tuple(place["id"] for place in projects_of(user) if place["library"] and not place["archived"])
    changes = request.method not in SAFE and url_resources.material(match.route) and not url_resources.uses(match.route)
    libraries = () if changes else shared  # libraries are for reading: a change sees what is the project's own
    project = url_resources.project_of(match.route, match.kwargs)
    if project is None:
        if here is None:
            return Access(user.pk, "", DEFAULT_PROJECT, NOWHERE)
        return Access(user.pk, here["role"], here["id"], here["id"], libraries)
    there = next((place for place in mine if place["id"] == project), None)
    if here is not None and not changes and project in shared and url_resources.material(match.route):
        role = here["role"] if url_resources.uses(match.route) else _lesser(here, there)
        return Access(user.pk, role, here["id"], here["id"], libraries)
    if there is None or (_bound(request, token) and here is not None and here["id"] != project):
        raise NotFound("such thing in", f"the project {here['slug']!r}" if here else "a project of yours")
    return Access(user.pk, there["role"], project, project, libraries)


def _lesser(here: Place, there: Place | None) -> str:
    """Effective role for shared objects: the lower of the roles in the user's project and in the library."""
    return str(min(here["role"], there["role"] if there else Role.VIEWER, key=Role.values.index))


def _bound(request: HttpRequest, token: ApiToken | None) -> bool:
    """Whether the request fixes its project, so that no object may belong to another."""
    return CHOSEN in request.GET or (token is not None and token.project_id is not None)


def _chosen(request: HttpRequest, mine: list[Place], token: ApiToken | None) -> Place | None:
    """Project named by the request or the session, else the first. None for a user without projects."""
    if named := request.GET.get(CHOSEN, ""):
        found = next((place for place in mine if place["slug"] == named), None)
        if found is None:
            raise NotFound("project of yours", repr(named[:40]))
        return found
    kept = request.session.get(CHOSEN) if token is None and hasattr(request, "session") else None
    return next((place for place in mine if place["id"] == kept), mine[0] if mine else None)


def may_follow(user: User, topic: str) -> bool:
    """Whether a user may follow a live topic (`run:12`). Everybody may follow list topics, which identify no object."""
    user.__dict__.pop("placed", None)  # a connection lives long: somebody may have left the project since
    return reaches(user, topic)


def reaches(user: User, topic: str) -> bool:
    """`may_follow` for a freshly loaded user."""
    line = url_resources.topic_of(topic)
    if line is None:
        return True
    mine = reach(user)
    if len(projects_of(user)) == 1 or not mine:
        return bool(mine)
    project = url_resources.project_at(line, topic.partition(":")[2])
    shared = line[1] == url_resources.SHARED_TOPIC and any(
        p["library"] and p["id"] == project for p in projects_of(user)
    )
    return shared or any(place["id"] == project for place in mine)


def operates(user: User, topic: str) -> bool | None:
    """Whether a freshly loaded user may change a topic's object. None without access to it."""
    line = url_resources.topic_of(topic)
    if line is None or not reaches(user, topic):
        return None
    return may_in(user, url_resources.project_at(line, topic.partition(":")[2]), Role.OPERATOR)
