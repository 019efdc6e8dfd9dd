"""HTTP API of the current user and their own API tokens."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status

from composer_web.accounts import services
from composer_web.accounts.access import current
from composer_web.accounts.models import ApiToken, Project
from composer_web.accounts.schemas import CallerOut, NewToken, TokenIn, TokenOut
from composer_web.api.auth import Session, caller, token_of
from composer_web.api.schemas import ErrorOut
from composer_web.core.errors import NotFound

# Made and revoked by a logged-in person only: a stolen token cannot make itself a successor.
PERSON = [Session("read")]

router = Router()
whoami = Router()


@whoami.get("", response=CallerOut, summary="Who is calling, with which token, in which project")
def get_caller(request: HttpRequest) -> Any:
    user, access = caller(request), current()
    project = Project.objects.filter(pk=access.project).first() if access else None
    role = access.role if access else user.role
    return {
        "username": user.username,
        "role": role,
        "project": project.slug if project else None,
        "token": token_of(request),
    }


@router.get("", response=list[TokenOut], summary="Your tokens")
def list_tokens(request: HttpRequest) -> Any:
    return list(caller(request).tokens.select_related("project"))


@router.post("", response={201: NewToken, 422: ErrorOut}, auth=PERSON, summary="Make a token (session only)")
def create_token(request: HttpRequest, payload: TokenIn) -> Any:
    token, secret = services.create_token(user=caller(request), **payload.dict())
    return Status(201, {**TokenOut.from_orm(token).dict(), "secret": secret})


@router.delete(
    "/{token_id}", response={200: TokenOut, 404: ErrorOut}, auth=PERSON, summary="Revoke a token (session only)"
)
def revoke_token(request: HttpRequest, token_id: int) -> Any:
    token = ApiToken.objects.filter(pk=token_id, user=caller(request)).first()
    if token is None:
        raise NotFound("token", token_id)
    return services.revoke_token(token=token, by=caller(request))
