"""Promotion over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.gateway import canary
from composer_web.gateway.canary import Comparison
from composer_web.core.errors import NotFound
from composer_web.policies import gate, promotion
from composer_web.policies.promotion import Preview
from composer_web.policies.schemas import CanaryIn, GateRules, NoteIn, PromotionIn, PromotionOut

router = Router()
CHANGED: Any = {201: PromotionOut, 409: ErrorOut, 422: ErrorOut}


@router.get("", response=Page[PromotionOut], summary="What was promoted; the newest counts")
def list_promotions(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(promotion.history(), limit=limit, before=before)


@router.post("/promote", response=CHANGED, auth=needs("operate"), summary="Promote a version, if the gate is open")
def promote(request: HttpRequest, payload: PromotionIn) -> Any:
    return Status(201, promotion.promote(reference=payload.policy, note=payload.note, actor=caller(request)))


@router.post("/canary", response=CHANGED, auth=needs("operate"), summary="Give a version a share of new sessions")
def start_canary(request: HttpRequest, payload: CanaryIn) -> Any:
    made = promotion.canary(reference=payload.policy, share=payload.share, note=payload.note, actor=caller(request))
    return Status(201, made)


@router.post("/end-canary", response=CHANGED, auth=needs("operate"), summary="Serve only what is promoted")
def end_canary(request: HttpRequest, payload: NoteIn) -> Any:
    return Status(201, promotion.end_canary(note=payload.note, actor=caller(request)))


@router.post("/rollback", response=CHANGED, auth=needs("operate"), summary="Go back to what was promoted before")
def rollback(request: HttpRequest, payload: NoteIn) -> Any:
    return Status(201, promotion.rollback(note=payload.note, actor=caller(request)))


@router.get(
    "/canary",
    response={200: Comparison, 404: ErrorOut},
    summary="The canary beside what is promoted, as sessions show it",
)
def compare_canary(request: HttpRequest) -> Any:
    """What guards judge, measure by measure. 404 while there is no canary."""
    found = canary.compare()
    if found is None:
        raise NotFound("canary", f"on {promotion.CHANNEL}")
    return found


@router.get("/check", response={200: Preview, 422: ErrorOut}, summary="Whether a version would pass the gate")
def check_version(request: HttpRequest, policy: str) -> Any:
    """Nothing is promoted. Each rule that does not hold says what to do."""
    return promotion.preview(policy)


@router.get("/gate", response=GateRules, summary="Rules that a version must pass")
def get_gate(request: HttpRequest) -> Any:
    return {"rules": gate.rules(promotion.CHANNEL)}


@router.put("/gate", response={200: GateRules, 422: ErrorOut}, auth=needs("operate"), summary="Replace the rules")
def set_gate(request: HttpRequest, payload: GateRules) -> Any:
    wanted = [rule.model_dump() for rule in payload.rules]
    gate.set_rules(channel=promotion.CHANNEL, wanted=wanted, actor=caller(request))
    return {"rules": gate.rules(promotion.CHANNEL)}
