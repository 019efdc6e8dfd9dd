"""HTTP API of signals, recorded sessions and settings. Gateway clients use the gateway scope; users use theirs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Body, Query, Router, Status
from ninja.security import HttpBearer

from composer_web.accounts.access import Access, begin
from composer_web.accounts.models import Role, User
from composer_web.api.auth import Forbidden, caller, needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.core.errors import NotFound
from composer_web.gateway import configuration
from composer_web.gateway.configuration import Settings
from composer_web.gateway.errors import NotAllowed, Unauthenticated
from composer_web.gateway.http.filters import SessionFilter
from composer_web.gateway.models import Session
from composer_web.gateway.schemas import (
    ErasedOut,
    SessionDetailOut,
    SessionDraftIn,
    SessionOut,
    SignalsIn,
    SignalsOut,
    UserIn,
)
from composer_web.gateway.serving import recording
from composer_web.gateway.serving.admission import authenticate
from composer_web.gateway.sessions import exporting, selectors, signals, task_drafts
from composer_web.review.http.schemas import DraftOut
from composer_web.review.selectors import get_draft

router = Router()
REFUSED: dict[int, Any] = {404: ErrorOut, 409: ErrorOut, 422: ErrorOut}


class GatewayToken(HttpBearer):
    """A token with the explicit scope `gateway`. Wider scopes do not include it."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        try:
            found = authenticate(f"Bearer {token}")
            if (project := found.token.project_id) is not None:  # what was recorded in others is not there
                begin(Access(found.user.pk, Role.VIEWER, project, project))
            return found.user
        except Unauthenticated:
            return None
        except NotAllowed as error:
            raise Forbidden(error.message) from error


@router.post(
    "/signals", response={200: SignalsOut, **REFUSED}, auth=[GatewayToken()], summary="What users did after an answer"
)
def send_signals(request: HttpRequest, payload: SignalsIn) -> Any:
    """Idempotent by the id of each signal; all are kept or none."""
    return signals.take(owner=caller(request), session=payload.session, signals=payload.signals)


@router.delete(
    "/own-sessions/{path:client_id}",
    response={204: None, 404: ErrorOut},
    auth=[GatewayToken()],
    summary="Delete a session that this client recorded",
)
def delete_own_session(request: HttpRequest, client_id: str) -> Any:
    found = Session.objects.filter(owner=caller(request), client_id=client_id).first()
    if found is None:
        raise NotFound("recorded session", repr(client_id[:120]))
    recording.delete(session=found, actor=caller(request))
    return Status(204, None)


@router.get("/sessions", response=Page[SessionOut], auth=needs("review"), summary="List recorded sessions")
def list_sessions(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    q: str = "",
    policy: str = "",
    version: int | None = None,
    canary: str = "",
    malformed: int | None = None,
    signal: str = "",
) -> Any:
    """Newest first; the filters are those of the page."""
    return page(filtered(SessionFilter, request, selectors.sessions()), limit=limit, before=before)


@router.get(
    "/sessions/{session_id}",
    response={200: SessionDetailOut, 404: ErrorOut},
    auth=needs("review"),
    summary="One session",
)
def get_session(request: HttpRequest, session_id: int) -> Any:
    session = selectors.get(session_id)
    turns = [
        {
            "index": one.turn.index,
            "text": one.turn.text,
            "calls": one.turn.calls,
            "messages": one.turn.messages,
            "malformed": one.turn.facts.malformed,
            "question": one.turn.facts.question,
            "edits": one.turn.facts.edits,
            "tokens": len(one.turn.token_ids),
            "versions": one.versions,
            "first_token_ms": one.turn.first_token_ms,
            "reward": one.reward,
            "parts": [part.model_dump(include={"name", "value", "weight"}) for part in one.parts],
        }
        for one in selectors.shown(session)
    ]
    head = SessionOut.from_orm(session).model_dump()
    return {**head, "recorded": turns, "signals": [signal.model_dump() for signal in selectors.signals_of(session)]}


@router.get("/sessions/{session_id}/atif", response={200: dict, 404: ErrorOut}, auth=needs("review"), summary="As ATIF")
def get_session_atif(request: HttpRequest, session_id: int) -> Any:
    return exporting.as_atif(selectors.get(session_id))


@router.delete(
    "/sessions/{session_id}", response={204: None, 404: ErrorOut}, auth=needs("operate"), summary="Delete a session"
)
def delete_session(request: HttpRequest, session_id: int) -> Any:
    recording.delete(session=selectors.get(session_id), actor=caller(request))
    return Status(204, None)


@router.post("/erase", response={200: ErasedOut, 422: ErrorOut}, auth=needs("operate"), summary="Delete a user's data")
def erase_user(request: HttpRequest, payload: UserIn) -> Any:
    """Every session of an end user, with turns, signals, texts and tokens."""
    return {"sessions": recording.erase(user=payload.user, actor=caller(request))}


@router.post(
    "/sessions/{session_id}/promote",
    response={201: DraftOut, **REFUSED},
    auth=needs("review"),
    deprecated=True,
    operation_id="create_session_draft_by_its_old_address",
    summary="Use /gateway/sessions/{session_id}/drafts",
)
@router.post(
    "/sessions/{session_id}/drafts",
    response={201: DraftOut, **REFUSED},
    auth=needs("review"),
    summary="Create a task draft from a session",
)
def create_session_draft(request: HttpRequest, session_id: int, payload: SessionDraftIn) -> Any:
    session = selectors.get(session_id)
    draft = task_drafts.create_draft(session=session, actor=caller(request), **payload.dict())
    return Status(201, get_draft(draft.pk))


@router.get("/settings", response=Settings, summary="How the gateway behaves")
def get_settings(request: HttpRequest) -> Any:
    return configuration.settings_of()


@router.patch(
    "/settings", response={200: Settings, 422: ErrorOut}, auth=needs("operate"), summary="Change some settings"
)
def change_settings(
    request: HttpRequest,
    payload: dict[str, Any] = Body(..., description="Some of what `GET` answers with; the rest stays"),
) -> Any:
    return configuration.change(values=payload, actor=caller(request))
