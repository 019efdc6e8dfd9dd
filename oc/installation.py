"""What belongs to the whole installation, as typed calls: promotion, the gateway, alerts, quotas, the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from oc import models
from oc.client import PAGE, Client, Json

M = models


class Installation:
    """Calls over one client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    # --- promotion -----------------------------------------------------------------------------------------------

    def promotions(self, *, limit: int = PAGE) -> Iterator[M.PromotionOut]:
        return self.client.pages("/promotions", M.PromotionOut, limit=limit)

    def change_channel(self, doing: str, body: Json) -> M.PromotionOut:
        """`doing` is promote, canary, end-canary or rollback."""
        return M.PromotionOut.model_validate(self.client.call("POST", f"/promotions/{doing}", body=body))

    def gate(self) -> M.GateRules:
        return M.GateRules.model_validate(self.client.call("GET", "/promotions/gate"))

    def set_gate(self, body: Json) -> M.GateRules:
        return M.GateRules.model_validate(self.client.call("PUT", "/promotions/gate", body=body))

    # --- gateway -------------------------------------------------------------------------------------------------

    def gateway(self) -> M.Settings:
        return M.Settings.model_validate(self.client.call("GET", "/gateway/settings"))

    def change_gateway(self, body: Json) -> M.Settings:
        return M.Settings.model_validate(self.client.call("PATCH", "/gateway/settings", body=body))

    def sessions(self, *, limit: int = PAGE, **filters: Any) -> Iterator[M.SessionOut]:
        return self.client.pages("/gateway/sessions", M.SessionOut, limit=limit, query=filters)

    def session(self, pk: int) -> M.SessionDetailOut:
        return M.SessionDetailOut.model_validate(self.client.call("GET", f"/gateway/sessions/{pk}"))

    def session_as_atif(self, pk: int) -> Json:
        found: Json = self.client.call("GET", f"/gateway/sessions/{pk}/atif")
        return found

    def all_sessions(self) -> Iterator[str]:
        """Text of a file with one JSON object a line."""
        return self.client.file("/gateway/sessions.jsonl")

    def draft_of_session(self, pk: int, body: Json) -> M.DraftOut:
        return M.DraftOut.model_validate(self.client.call("POST", f"/gateway/sessions/{pk}/promote", body=body))

    def delete_session(self, pk: int) -> None:
        self.client.call("DELETE", f"/gateway/sessions/{pk}")

    def delete_own_session(self, client_id: str) -> None:
        """With a token of the scope `gateway`."""
        self.client.call("DELETE", f"/gateway/own-sessions/{quote(client_id)}")

    def erase(self, user: str) -> M.ErasedOut:
        return M.ErasedOut.model_validate(self.client.call("POST", "/gateway/erase", body={"user": user}))

    def signal(self, session: str, signals: list[Json]) -> M.SignalsOut:
        """With a token of the scope `gateway`."""
        body = {"session": session, "signals": signals}
        return M.SignalsOut.model_validate(self.client.call("POST", "/gateway/signals", body=body))

    # --- alerts --------------------------------------------------------------------------------------------------

    def alerts(self, *, limit: int = PAGE, **filters: Any) -> Iterator[M.AlertOut]:
        return self.client.pages("/alerts", M.AlertOut, limit=limit, query=filters)

    def notices(self, *, limit: int = PAGE, unread: bool = False) -> Iterator[M.NoticeOut]:
        query = {"unread": "true" if unread else None}
        return self.client.pages("/alerts/notices", M.NoticeOut, limit=limit, query=query)

    def acknowledge(self, notice: int | None = None) -> M.ReadOut:
        """One of your notices, or all."""
        path = "/alerts/notices/read" if notice is None else f"/alerts/notices/{notice}/read"
        return M.ReadOut.model_validate(self.client.call("POST", path))

    def rules(self) -> list[M.RuleOut]:
        return TypeAdapter(list[M.RuleOut]).validate_python(self.client.call("GET", "/alerts/rules"))

    def make_rule(self, body: Json) -> M.RuleOut:
        return M.RuleOut.model_validate(self.client.call("POST", "/alerts/rules", body=body))

    def switch_rule(self, pk: int, action: str) -> M.RuleOut:
        return M.RuleOut.model_validate(self.client.call("POST", f"/alerts/rules/{pk}/{action}"))

    def remove_rule(self, pk: int) -> None:
        self.client.call("DELETE", f"/alerts/rules/{pk}")

    def deliveries(self, *, limit: int = PAGE) -> Iterator[M.DeliveryOut]:
        return self.client.pages("/alerts/deliveries", M.DeliveryOut, limit=limit)

    def repeat(self, delivery: int) -> M.DeliveryOut:
        return M.DeliveryOut.model_validate(self.client.call("POST", f"/alerts/deliveries/{delivery}/repeat"))

    # --- quotas and the audit log --------------------------------------------------------------------------------

    def quotas(self) -> list[M.QuotaOut]:
        return TypeAdapter(list[M.QuotaOut]).validate_python(self.client.call("GET", "/quotas"))

    def set_quota(self, body: Json) -> M.QuotaOut:
        return M.QuotaOut.model_validate(self.client.call("PUT", "/quotas", body=body))

    def audit(self, *, limit: int = PAGE, **filters: Any) -> Iterator[M.AuditOut]:
        return self.client.pages("/audit", M.AuditOut, limit=limit, query=filters)
