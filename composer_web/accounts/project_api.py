"""HTTP API of projects and their members."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status

from composer_web.accounts import projects
from composer_web.accounts.models import Membership, Project, Role
from composer_web.accounts.permissions import reach
from composer_web.api.auth import Forbidden, caller, needs
from composer_web.api.schemas import Body, ErrorOut

router = Router()
REFUSED: dict[int, Any] = {403: ErrorOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut}


class ProjectOut(Schema):
    id: int
    slug: str
    name: str
    open: bool = Field(description="Everybody with an account has in it at least the role of the account")
    library: bool = Field(description="Its tasks, suites, environments and policies may be read in every project")
    archived: bool
    role: str = Field(description="Yours in it")


class ProjectIn(Body):
    slug: str
    name: str


class ProjectChange(Body):
    name: str
    open: bool = False
    library: bool = False
    archived: bool = False


class ProjectMemberOut(Schema):
    username: str
    role: str
    created_at: datetime


class MemberIn(Body):
    username: str
    role: str


@router.get("", response=list[ProjectOut], summary="Your projects")
def list_projects(request: HttpRequest) -> Any:
    """Name one of them as `?project=` of any operation, or bind a token to it."""
    return [{**place, "archived": bool(place["archived"])} for place in reach(caller(request))]


@router.post("", response={201: ProjectOut, **REFUSED}, auth=needs("admin"), summary="Make a project")
def create_project(request: HttpRequest, payload: ProjectIn) -> Any:
    actor = caller(request)
    if actor.role != Role.ADMIN:
        raise Forbidden("admins of the installation make projects")
    made = projects.create_project(slug=payload.slug, name=payload.name, actor=actor)
    return Status(201, _out(made))


@router.patch("/{slug}", response={200: ProjectOut, **REFUSED}, auth=needs("admin"), summary="Change a project")
def change_project(request: HttpRequest, slug: str, payload: ProjectChange) -> Any:
    project = projects.get_project(slug)
    return _out(projects.change_project(project=project, actor=caller(request), **payload.dict()))


@router.get("/{slug}/members", response={200: list[ProjectMemberOut], **REFUSED}, summary="Who is in a project")
def list_members(request: HttpRequest, slug: str) -> Any:
    return [_member(row) for row in projects.get_project(slug).memberships.select_related("user")]


@router.post("/{slug}/members", response={200: ProjectMemberOut, **REFUSED}, auth=needs("admin"), summary="Give a role")
def set_member(request: HttpRequest, slug: str, payload: MemberIn) -> Any:
    project = projects.get_project(slug)
    return _member(
        projects.set_member(project=project, username=payload.username, role=payload.role, actor=caller(request))
    )


@router.post("/{slug}/members/remove", response={204: None, **REFUSED}, auth=needs("admin"), summary="Remove a member")
def remove_member(request: HttpRequest, slug: str, payload: MemberIn) -> Any:
    projects.remove_member(project=projects.get_project(slug), username=payload.username, actor=caller(request))
    return Status(204, None)


def _out(project: Project) -> dict[str, Any]:
    known = {name: getattr(project, name) for name in ("id", "slug", "name", "open", "library")}
    return {**known, "archived": project.archived_at is not None, "role": str(Role.ADMIN)}


def _member(row: Membership) -> dict[str, Any]:
    return {"username": row.user.username, "role": row.role, "created_at": row.created_at}
