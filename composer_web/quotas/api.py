"""HTTP API of quotas."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router

from composer_web.accounts.models import User
from composer_web.accounts.permissions import reach
from composer_web.accounts.projects import get_project
from composer_web.api.auth import caller, needs
from composer_web.api.schemas import Body, ErrorOut
from composer_web.core.errors import NotFound
from composer_web.quotas import limits
from composer_web.quotas.models import Quota
from composer_web.quotas.usage import QuotaUsage, standing

router = Router()


class Limits(Body):
    concurrent_rollouts: int | None = Field(default=None, description="Rollouts in flight")
    storage_gib: float | None = Field(default=None, description="Kept checkpoints, in GiB")
    gpu_share: float | None = Field(default=None, description="Of all rollouts in flight, while others run")
    gpus: int | None = Field(default=None, description="GPUs that runs train on at once, one a rank")


class QuotaIn(Limits):
    username: str = Field(default="", description="For a person; without project and person for everybody else")
    project: str = Field(default="", description="For a project, by its short name")


class QuotaOut(QuotaIn):
    rollouts_now: int | None = Field(description="In flight now; null for everybody's")
    bytes_now: int | None = Field(description="Kept checkpoints now")
    gpus_now: int | None = Field(description="Trained on now; a run has one for each of its ranks")


@router.get("", response=list[QuotaOut], summary="Quotas and what is used of them")
def list_quotas(request: HttpRequest) -> Any:
    mine = {place["id"] for place in reach(caller(request))}
    rows = Quota.objects.select_related("user", "project").order_by("pk")
    now = standing()
    return [_out(row, now) for row in rows if row.project_id is None or row.project_id in mine]


@router.put(
    "", response={200: QuotaOut, 404: ErrorOut, 422: ErrorOut}, auth=needs("admin"), summary="Set or remove a quota"
)
def set_quota(request: HttpRequest, payload: QuotaIn) -> Any:
    """All limits empty removes it."""
    user = User.objects.filter(username=payload.username).first() if payload.username else None
    if payload.username and user is None:
        raise NotFound("person", repr(payload.username[:80]))
    project = get_project(payload.project) if payload.project else None
    given = payload.dict(include=set(Limits.model_fields))
    made = limits.set_quota(actor=caller(request), user=user, project=project, **given)
    return _out(made or Quota(user=user, project=project), standing())


def _out(row: Quota, now: QuotaUsage) -> dict[str, Any]:
    owned = row.user_id is not None or row.project_id is not None
    used = now.use(user_id=row.user_id, project_id=row.project_id) if owned else None
    return {
        **{name: getattr(row, name) for name in Limits.model_fields},
        "username": row.user.username if row.user else "",
        "project": row.project.slug if row.project else "",
        "rollouts_now": used.rollouts if used else None,
        "bytes_now": used.bytes if used else None,
        "gpus_now": now.trained(user_id=row.user_id, project_id=row.project_id) if owned else None,
    }
