"""What belongs to the whole installation, as typed calls: promotion, the gateway, alerts, quotas, the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from oc import models
from oc.client import PAGE, Client, Json


class Installation:
    """Calls over one client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    # --- promotion -----------------------------------------------------------------------------------------------

    def promotions(self, *, limit: int = PAGE) -> Iterator[models.PromotionOut]:
        return self.client.pages("/promotions", models.PromotionOut, limit=limit)

    def change_channel(self, doing: str, body: Json) -> models.PromotionOut:
        """`doing` is promote, canary, end-canary or rollback."""
        return models.PromotionOut.model_validate(self.client.call("POST", f"/promotions/{doing}", body=body))

    def gate(self) -> models.GateRules:
        return models.GateRules.model_validate(self.client.call("GET", "/promotions/gate"))

    def set_gate(self, body: Json) -> models.GateRules:
        return models.GateRules.model_validate(self.client.call("PUT", "/promotions/gate", body=body))

    def check_version(self, policy: str) -> models.Preview:
        return models.Preview.model_validate(self.client.call("GET", "/promotions/check", query={"policy": policy}))

    def canary(self) -> models.Comparison:
        return models.Comparison.model_validate(self.client.call("GET", "/promotions/canary"))

    # --- gateway -------------------------------------------------------------------------------------------------

    def gateway(self) -> models.Settings:
        return models.Settings.model_validate(self.client.call("GET", "/gateway/settings"))

    def change_gateway(self, body: Json) -> models.Settings:
        return models.Settings.model_validate(self.client.call("PATCH", "/gateway/settings", body=body))

    def sessions(self, *, limit: int = PAGE, **filters: Any) -> Iterator[models.SessionOut]:
        return self.client.pages("/gateway/sessions", models.SessionOut, limit=limit, query=filters)

    def session(self, pk: int) -> models.SessionDetailOut:
        return models.SessionDetailOut.model_validate(self.client.call("GET", f"/gateway/sessions/{pk}"))

    def session_as_atif(self, pk: int) -> Json:
        found: Json = self.client.call("GET", f"/gateway/sessions/{pk}/atif")
        return found

    def all_sessions(self) -> Iterator[bytes]:
        """A file with one JSON object a line."""
        return self.client.stream("/gateway/sessions.jsonl")

    def draft_of_session(self, pk: int, body: Json) -> models.DraftOut:
        return models.DraftOut.model_validate(self.client.call("POST", f"/gateway/sessions/{pk}/promote", body=body))

    def delete_session(self, pk: int) -> None:
        self.client.call("DELETE", f"/gateway/sessions/{pk}")

    def delete_own_session(self, client_id: str) -> None:
        """With a token of the scope `gateway`."""
        self.client.call("DELETE", f"/gateway/own-sessions/{quote(client_id)}")

    def erase(self, user: str) -> models.ErasedOut:
        return models.ErasedOut.model_validate(self.client.call("POST", "/gateway/erase", body={"user": user}))

    def signal(self, session: str, signals: list[Json]) -> models.SignalsOut:
        """With a token of the scope `gateway`."""
        body = {"session": session, "signals": signals}
        return models.SignalsOut.model_validate(self.client.call("POST", "/gateway/signals", body=body))

    # --- alerts --------------------------------------------------------------------------------------------------

    def alerts(self, *, limit: int = PAGE, **filters: Any) -> Iterator[models.AlertOut]:
        return self.client.pages("/alerts", models.AlertOut, limit=limit, query=filters)

    def notices(self, *, limit: int = PAGE, unread: bool = False) -> Iterator[models.NoticeOut]:
        query = {"unread": "true" if unread else None}
        return self.client.pages("/alerts/notices", models.NoticeOut, limit=limit, query=query)

    def acknowledge(self, notice: int | None = None) -> models.ReadOut:
        """One of your notices, or all."""
        path = "/alerts/notices/read" if notice is None else f"/alerts/notices/{notice}/read"
        return models.ReadOut.model_validate(self.client.call("POST", path))

    def rules(self) -> list[models.RuleOut]:
        return TypeAdapter(list[models.RuleOut]).validate_python(self.client.call("GET", "/alerts/rules"))

    def make_rule(self, body: Json) -> models.RuleOut:
        return models.RuleOut.model_validate(self.client.call("POST", "/alerts/rules", body=body))

    def change_rule(self, pk: int, changes: Json) -> models.RuleOut:
        """What is not named stays. Raises ApiError, also for a rule that is not there."""
        rule = next((rule for rule in self.rules() if rule.id == pk), None)
        now = {} if rule is None else rule.model_dump(mode="json", exclude={"id", "active"})
        body = {"name": "?", "kind": "finding", **now, **changes}  # without a rule the API says so
        return models.RuleOut.model_validate(self.client.call("PUT", f"/alerts/rules/{pk}", body=body))

    def switch_rule(self, pk: int, action: str) -> models.RuleOut:
        return models.RuleOut.model_validate(self.client.call("POST", f"/alerts/rules/{pk}/{action}"))

    def remove_rule(self, pk: int) -> None:
        self.client.call("DELETE", f"/alerts/rules/{pk}")

    def deliveries(self, *, limit: int = PAGE) -> Iterator[models.DeliveryOut]:
        return self.client.pages("/alerts/deliveries", models.DeliveryOut, limit=limit)

    def repeat(self, delivery: int) -> models.DeliveryOut:
        return models.DeliveryOut.model_validate(self.client.call("POST", f"/alerts/deliveries/{delivery}/repeat"))

    # --- webhooks ------------------------------------------------------------------------------------------------

    def webhooks(self) -> list[models.WebhookOut]:
        return TypeAdapter(list[models.WebhookOut]).validate_python(self.client.call("GET", "/alerts/webhooks"))

    def make_webhook(self, body: Json) -> models.NewWebhook:
        return models.NewWebhook.model_validate(self.client.call("POST", "/alerts/webhooks", body=body))

    def change_webhook(self, pk: int, body: Json) -> models.WebhookOut:
        return models.WebhookOut.model_validate(self.client.call("PATCH", f"/alerts/webhooks/{pk}", body=body))

    def try_webhook(self, pk: int) -> models.DeliveryOut:
        return models.DeliveryOut.model_validate(self.client.call("POST", f"/alerts/webhooks/{pk}/test"))

    # --- quotas and the audit log --------------------------------------------------------------------------------

    def quotas(self) -> list[models.QuotaOut]:
        return TypeAdapter(list[models.QuotaOut]).validate_python(self.client.call("GET", "/quotas"))

    def set_quota(self, body: Json) -> models.QuotaOut:
        return models.QuotaOut.model_validate(self.client.call("PUT", "/quotas", body=body))

    def audit(self, *, limit: int = PAGE, **filters: Any) -> Iterator[models.AuditOut]:
        return self.client.pages("/audit", models.AuditOut, limit=limit, query=filters)

    # --- people --------------------------------------------------------------------------------------------------

    def people(self) -> list[models.PersonOut]:
        return TypeAdapter(list[models.PersonOut]).validate_python(self.client.call("GET", "/people"))

    def change_person(self, username: str, body: Json) -> models.PersonOut:
        return models.PersonOut.model_validate(self.client.call("PATCH", f"/people/accounts/{username}", body=body))

    def invitations(self) -> list[models.InvitationOut]:
        answer = self.client.call("GET", "/people/invitations")
        return TypeAdapter(list[models.InvitationOut]).validate_python(answer)

    def invite(self, body: Json) -> models.NewInvitation:
        return models.NewInvitation.model_validate(self.client.call("POST", "/people/invitations", body=body))

    def withdraw(self, pk: int) -> None:
        self.client.call("DELETE", f"/people/invitations/{pk}")
