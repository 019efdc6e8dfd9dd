"""Webhook signatures according to the Standard Webhooks specification, so that its libraries can verify them.

`webhook-signature: v1,<base64 of HMAC-SHA256 over "id.timestamp.body">`; the secret is `whsec_` and base64.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping

PREFIX = "whsec_"
WINDOW_SECONDS = 300
"""A message whose time stamp is further away than this is a replay, or the clocks differ."""


class BadSignature(Exception):
    """The message is not what we sent, or was sent at another time. The text says which."""


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(24)).decode()


def headers(secret: str, *, key: str, body: bytes, now: float | None = None) -> dict[str, str]:
    stamp = str(int(time.time() if now is None else now))
    return {"webhook-id": key, "webhook-timestamp": stamp, "webhook-signature": f"v1,{_sign(secret, key, stamp, body)}"}


def verify(secret: str, sent: Mapping[str, str], body: bytes, *, now: float | None = None) -> None:
    """What a receiver does. Raises BadSignature. A receiver also remembers the ids of WINDOW_SECONDS."""
    key, stamp = sent.get("webhook-id", ""), sent.get("webhook-timestamp", "")
    if not stamp.isdigit() or abs((time.time() if now is None else now) - int(stamp)) > WINDOW_SECONDS:
        raise BadSignature(f"the time stamp {stamp!r} is not within {WINDOW_SECONDS} s of now")
    wanted = _sign(secret, key, stamp, body)
    given = [part.partition(",")[2] for part in sent.get("webhook-signature", "").split(" ") if part.startswith("v1,")]
    if not any(hmac.compare_digest(wanted, one) for one in given):
        raise BadSignature("the signature does not belong to this message")


def _sign(secret: str, key: str, stamp: str, body: bytes) -> str:
    raw = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.new(raw, f"{key}.{stamp}.".encode() + body, hashlib.sha256).digest()).decode()
