"""External deliveries: e-mail and signed webhooks, retried with growing delays."""

from __future__ import annotations

import json
import random
import smtplib
from datetime import timedelta

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.utils import timezone

from composer_web.alerts import signing
from composer_web.alerts.models import Delivery
from composer_web.core.encryption import Unreadable, unseal
from composer_web.core.network import safe_http
from composer_web.core.queue.outbox import enqueue
from sandbox.network.guard import Refused

PURPOSE = b"webhook secrets"
PAUSES = (10.0, 60.0, 300.0, 1800.0, 7200.0)
"""Seconds before the second, third, … try; after the last the delivery has failed."""


class NotSent(Exception):
    """This try failed. `final` where another would fail the same way."""

    def __init__(self, message: str, *, status: int | None = None, final: bool = False) -> None:
        super().__init__(message)
        self.status, self.final = status, final


def deliver(*, delivery_id: int) -> None:
    """One try. A second message for the same try finds the row locked, sent or not yet due and does nothing.

    The row stays locked while the other side is asked (at most its timeout), so that no try is made twice at once; a
    worker that dies in between may repeat one, which the receiver knows by its id.
    """
    with transaction.atomic():
        row = (
            Delivery.objects.select_for_update(skip_locked=True, of=("self",))
            .select_related("webhook")
            .filter(pk=delivery_id, state=Delivery.State.WAITING, due_at__lte=timezone.now())
            .first()
        )
        if row is None:
            return
        row.tries += 1
        try:
            if row.webhook is not None:
                row.status = _webhook(row)
            else:
                _email(row)
        except NotSent as problem:
            row.error, row.status = str(problem)[:500], problem.status
            if problem.final or row.tries > len(PAUSES):
                row.state = Delivery.State.FAILED
            else:
                pause = PAUSES[row.tries - 1] * random.uniform(1.0, 1.2)
                row.due_at = timezone.now() + timedelta(seconds=pause)
                send_later(row, seconds=pause + 0.1)
        else:
            row.state, row.error, row.sent_at = Delivery.State.SENT, "", timezone.now()
        row.save()


def send(row: Delivery) -> Delivery:
    """Keep it, and have it sent once the transaction commits."""
    row.due_at = timezone.now()
    row.save()
    send_later(row)
    return row


def send_later(row: Delivery, *, seconds: float = 0.0) -> None:
    """Ask a worker for the next try."""
    enqueue("alerts.deliver", {"delivery_id": row.pk}, queue="io", key=f"deliver:{row.pk}", delay=seconds)


def _webhook(row: Delivery) -> int:
    assert row.webhook is not None
    if not row.webhook.active:
        raise NotSent("the webhook is switched off", final=True)
    try:
        secret = unseal(row.webhook.secret, purpose=PURPOSE)
    except Unreadable as error:
        raise NotSent(f"its secret cannot be read: {error}; make the webhook again", final=True) from error
    assert secret is not None, "a webhook always has a secret"
    body = json.dumps(row.body, separators=(",", ":"), ensure_ascii=False).encode()
    signed = signing.headers(secret.get_secret_value(), key=f"msg_{row.pk}", body=body)
    headers = {
        "content-type": "application/json",
        "user-agent": "OpenComposer",
        **signed,
    }
    try:
        status = safe_http.post(row.webhook.url, body, headers, guard=safe_http.webhooks())
    except Refused as error:
        raise NotSent(str(error), final=True) from error
    except safe_http.Unreachable as error:
        raise NotSent(str(error)) from error
    if 300 <= status < 400:
        raise NotSent(
            f"it answered {status}: redirects are not followed; give the final address", status=status, final=True
        )
    if status >= 400:
        raise NotSent(f"it answered {status}", status=status, final=status == 410)
    return status


def _email(row: Delivery) -> None:
    if not settings.EMAIL_HOST and "smtp" in settings.EMAIL_BACKEND:
        raise NotSent("no mail server is set: OPENCOMPOSER_EMAIL_URL=smtp://user:password@host:587", final=True)
    subject = " ".join(str(row.body["title"]).split())[:150]
    link = f"\n\n{row.body['link']}" if row.body.get("link") else ""
    message = EmailMessage(subject, f"{row.body['message']}{link}\n", to=[row.email])
    try:
        message.send()
    except (smtplib.SMTPException, OSError) as error:
        raise NotSent(f"the mail server did not take it: {error}") from error
