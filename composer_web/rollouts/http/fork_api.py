"""HTTP API of forks."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.schemas import ErrorOut
from composer_web.rollouts import selectors
from composer_web.rollouts.http.schemas import ForkIn, ForkOut
from composer_web.rollouts.models import Fork
from composer_web.rollouts.worker import forks

router = Router()


@router.get("", response={200: list[ForkOut], 404: ErrorOut}, summary="Forks of a rollout")
def list_forks(request: HttpRequest, rollout: int) -> Any:
    """Newest first."""
    return selectors.forks_of(selectors.get_rollout(rollout))


@router.post(
    "",
    response={201: ForkOut, 404: ErrorOut, 422: ErrorOut, 503: ErrorOut},
    auth=needs("operate"),
    summary="Continue a rollout from one of its turns",
)
def create_fork(request: HttpRequest, rollout: int, payload: ForkIn) -> Any:
    """The continuations are graded as usual and never trained on; their rollouts are those of the fork's group."""
    made = forks.request_fork(
        rollout=selectors.get_rollout(rollout),
        turn=payload.turn,
        count=payload.count,
        reference=payload.policy,
        actor=caller(request),
    )
    return Status(201, _shown(made.pk))


@router.get("/{fork_id}", response={200: ForkOut, 404: ErrorOut}, summary="One fork")
def get_fork(request: HttpRequest, fork_id: int) -> Any:
    return _shown(fork_id)


@router.post(
    "/{fork_id}/cancel",
    response={200: ForkOut, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Cancel",
)
def cancel(request: HttpRequest, fork_id: int) -> Any:
    forks.cancel(fork=selectors.get_fork(fork_id), actor=caller(request))
    return _shown(fork_id)


def _shown(pk: int) -> Fork:
    fork = selectors.get_fork(pk)
    return selectors.forks_of(fork.parent).get(pk=pk)
