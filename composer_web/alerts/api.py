"""HTTP API of alerts, rules and deliveries."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from composer_web.alerts import selectors, services
from composer_web.alerts.filters import AlertFilter
from composer_web.alerts.schemas import (
    AlertOut,
    DeliveryOut,
    NewWebhook,
    NoticeOut,
    ReadOut,
    RuleIn,
    RuleOut,
    WebhookChange,
    WebhookIn,
    WebhookOut,
)
from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, filtered, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.core.errors import UserError

router = Router()


@router.get("", response=Page[AlertOut], summary="List alerts")
def list_alerts(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    state: str = "",
    kind: str = "",
    rule: int | None = None,
    about: str = "",
) -> Any:
    """Newest first; the filters are those of the page."""
    return page(filtered(AlertFilter, request, selectors.alerts()), limit=limit, before=before)


@router.get("/notices", response=Page[NoticeOut], summary="What you are told")
def list_notices(
    request: HttpRequest,
    limit: int = Query(50, ge=1, le=MAX_PAGE),
    before: int | None = None,
    unread: bool = False,
) -> Any:
    return page(selectors.notices(caller(request), unread=unread), limit=limit, before=before)


@router.post("/notices/read", response=ReadOut, summary="Mark all of your notices as read")
def read_notices(request: HttpRequest) -> Any:
    return {"read": services.mark_read(user=caller(request))}


@router.post("/notices/{notice_id}/read", response={200: ReadOut, 404: ErrorOut}, summary="Mark one as read")
def read_notice(request: HttpRequest, notice_id: int) -> Any:
    found = selectors.get_notice(caller(request), notice_id)
    return {"read": services.mark_read(user=caller(request), notice=found.pk)}


@router.get("/rules", response=list[RuleOut], summary="List rules")
def list_rules(request: HttpRequest) -> Any:
    return list(selectors.rules())


@router.post("/rules", response={201: RuleOut, 422: ErrorOut}, auth=needs("operate"), summary="Make a rule")
def create_rule(request: HttpRequest, payload: RuleIn) -> Any:
    return Status(201, services.make_rule(actor=caller(request), **_fields(payload)))


def _fields(payload: RuleIn) -> dict[str, Any]:
    webhook = None if payload.webhook_id is None else selectors.get_webhook(payload.webhook_id)
    return {**payload.dict(exclude={"webhook_id"}), "webhook": webhook}


@router.post(
    "/rules/{rule_id}/{action}",
    response={200: RuleOut, 404: ErrorOut},
    auth=needs("operate"),
    summary="Switch a rule on or off",
)
def switch_rule(request: HttpRequest, rule_id: int, action: str) -> Any:
    if action not in ("on", "off"):
        raise UserError("action", f"a rule is switched on or off, not {action[:40]!r}")
    return services.switch_rule(rule=selectors.get_rule(rule_id), active=action == "on", actor=caller(request))


@router.put(
    "/rules/{rule_id}",
    response={200: RuleOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Change a rule",
)
def replace_rule(request: HttpRequest, rule_id: int, payload: RuleIn) -> Any:
    """All its fields from now on; whether it is switched on stays."""
    return services.change_rule(rule=selectors.get_rule(rule_id), actor=caller(request), **_fields(payload))


@router.delete("/rules/{rule_id}", response={204: None, 404: ErrorOut}, auth=needs("operate"), summary="Remove a rule")
def remove_rule(request: HttpRequest, rule_id: int) -> Any:
    services.remove_rule(rule=selectors.get_rule(rule_id), actor=caller(request))
    return Status(204, None)


@router.get("/webhooks", response=list[WebhookOut], auth=needs("operate"), summary="List webhooks")
def list_webhooks(request: HttpRequest) -> Any:
    return list(selectors.webhooks())


@router.post("/webhooks", response={201: NewWebhook, 422: ErrorOut}, auth=needs("operate"), summary="Make a webhook")
def create_webhook(request: HttpRequest, payload: WebhookIn) -> Any:
    row, secret = services.make_webhook(actor=caller(request), **payload.dict())
    return Status(201, {**WebhookOut.from_orm(row).dict(), "secret": secret})


@router.patch(
    "/webhooks/{webhook_id}",
    response={200: WebhookOut, 404: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Change a webhook",
)
def change_webhook(request: HttpRequest, webhook_id: int, payload: WebhookChange) -> Any:
    row = selectors.get_webhook(webhook_id)
    if payload.name is not None or payload.url is not None:
        row = services.change_webhook(webhook=row, name=payload.name, url=payload.url, actor=caller(request))
    if payload.events is not None:
        row = services.subscribe(webhook=row, events=payload.events, actor=caller(request))
    if payload.active is not None:
        row = services.switch_webhook(webhook=row, active=payload.active, actor=caller(request))
    return row


@router.post(
    "/webhooks/{webhook_id}/test",
    response={201: DeliveryOut, 404: ErrorOut},
    auth=needs("operate"),
    summary="Send it a test message",
)
def try_webhook(request: HttpRequest, webhook_id: int) -> Any:
    return Status(201, services.try_webhook(webhook=selectors.get_webhook(webhook_id), actor=caller(request)))


@router.get("/deliveries", response=Page[DeliveryOut], auth=needs("operate"), summary="List deliveries")
def list_deliveries(request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None) -> Any:
    return page(selectors.deliveries(), limit=limit, before=before)


@router.post(
    "/deliveries/{delivery_id}/repeat",
    response={200: DeliveryOut, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Try a failed delivery again",
)
def repeat_delivery(request: HttpRequest, delivery_id: int) -> Any:
    return services.repeat(delivery=selectors.get_delivery(delivery_id), actor=caller(request))
