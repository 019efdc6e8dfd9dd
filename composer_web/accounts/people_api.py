"""HTTP API of accounts and invitations, for admins of the installation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema, Status

from composer_web.accounts import people
from composer_web.accounts.models import Invitation, User
from composer_web.accounts.people_views import link_of
from composer_web.api.auth import caller, needs
from composer_web.api.schemas import Body, ErrorOut
from composer_web.core.errors import NotFound, UserError

router = Router(auth=needs("admin"))
REFUSED: dict[int, Any] = {404: ErrorOut, 409: ErrorOut, 422: ErrorOut}


class PersonOut(Schema):
    username: str
    email: str
    role: str
    active: bool
    projects: dict[str, str] = Field(description="Short name of a project → the role in it")
    last_login: datetime | None


class PersonChange(Body):
    """What is left out stays."""

    role: str | None = None
    active: bool | None = Field(default=None, description="false ends all sessions, and revokes all tokens for good")


class InvitationIn(Body):
    username: str
    role: str = "viewer"
    email: str = Field(default="", description="The link is sent there where a mail server is set up")
    project: str = Field(default="", description="Short name of a project where they are a member from the start")
    project_role: str = ""
    days: int = 7


class InvitationOut(Schema):
    id: int
    username: str
    email: str
    role: str
    project: str
    project_role: str
    created_at: datetime
    expires_at: datetime


class NewInvitation(InvitationOut):
    link: str = Field(description="Told this one time")
    sent: bool = Field(description="Whether it went out by e-mail")
    problem: str = Field(description="Why the mail server did not take it")


@router.get("", response=list[PersonOut], summary="List accounts")
def list_people(request: HttpRequest) -> Any:
    return [_person(user) for user in people.people()]


@router.patch("/accounts/{username}", response={200: PersonOut, **REFUSED}, summary="Change an account")
def change_person(request: HttpRequest, username: str, payload: PersonChange) -> Any:
    user, actor = people.get_person(username), caller(request)
    if payload.role is not None:
        people.change_role(user=user, role=payload.role, actor=actor)
    if payload.active is not None:
        (people.enable if payload.active else people.disable)(user=user, actor=actor)
    return _person(user)


@router.get("/invitations", response=list[InvitationOut], summary="List open invitations")
def list_invitations(request: HttpRequest) -> Any:
    return [_invitation(row) for row in people.invitations()]


@router.post("/invitations", response={201: NewInvitation, **REFUSED}, summary="Invite somebody")
def create_invitation(request: HttpRequest, payload: InvitationIn) -> Any:
    made, secret = people.invite(actor=caller(request), **payload.dict())
    link, problem, sent = link_of(request, secret), "", False
    try:
        sent = people.send(made, link)
    except UserError as error:
        problem = error.message
    return Status(201, {**_invitation(made), "link": link, "sent": sent, "problem": problem})


@router.delete("/invitations/{invitation_id}", response={204: None, **REFUSED}, summary="Withdraw an invitation")
def delete_invitation(request: HttpRequest, invitation_id: int) -> Any:
    row = people.invitations().filter(pk=invitation_id).first()
    if row is None:
        raise NotFound("open invitation", invitation_id)
    people.withdraw(invitation=row, actor=caller(request))
    return Status(204, None)


def _person(user: User) -> dict[str, Any]:
    return {
        "username": user.username,
        "email": user.email,
        "role": user.role,
        "active": user.is_active,
        "projects": {member.project.slug: member.role for member in user.memberships.all()},
        "last_login": user.last_login,
    }


def _invitation(row: Invitation) -> dict[str, Any]:
    known = {name: getattr(row, name) for name in InvitationOut.model_fields if name != "project"}
    return {**known, "project": row.project.slug if row.project else ""}
