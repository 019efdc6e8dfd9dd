"""Policies behind OpenAI-compatible endpoints: create, change, and connection data for workers."""

from __future__ import annotations

import json
import math
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from composer_web.accounts.models import User
from composer_web.accounts.scoping import within
from composer_web.accounts.services import audit
from composer_web.core.network import safe_http
from composer_web.core.errors import NotFound, UserError
from composer_web.policies.addresses import check_url
from composer_web.policies.keys import decrypt, encrypt
from composer_web.policies.models import Endpoint, Policy, PolicyKind
from trainer.inference import chat

MAX_PARAMETERS = 4000
RESERVED = frozenset({"model", "messages", "tools", "stream", "n", "max_tokens", "max_completion_tokens"})
"""Request fields that the harness sets."""


@transaction.atomic
def add(*, name: str, actor: User | None = None, key: str = "", description: str = "", **fields: Any) -> Policy:
    """Create a policy behind an endpoint. `fields` are those of Endpoint (at least `url` and `model`). Raises
    UserError."""
    if Policy.objects.filter(name=name).exists():
        raise UserError("name", f"there is a policy {name!r} already; choose another name")
    policy = Policy(name=name, description=description, kind=PolicyKind.ENDPOINT)
    endpoint = Endpoint(policy=policy, key=encrypt(key), created_by=actor, **_checked(fields))
    if "@" in name or "/" in name or not name.strip():
        raise UserError("name", "a name has at least one character, no @ and no /")
    _cleaned(policy, exclude=["base_dir", "architecture"])
    policy.save()
    endpoint.policy = policy
    _cleaned(endpoint)
    endpoint.save()
    audit(actor=actor, action="endpoint.add", target=f"policy:{policy.pk}", name=name, **_shown(endpoint))
    return policy


@transaction.atomic
def change(*, policy: Policy, actor: User | None = None, key: str | None = None, **fields: Any) -> Endpoint:
    """Change the given values; `key` None keeps the key. The model cannot change, because scores refer to its name."""
    endpoint = Endpoint.objects.select_for_update().get(policy=policy)
    before = _shown(endpoint)
    if fields.get("model", endpoint.model) != endpoint.model:
        raise UserError("model", f"{policy.name} stands for {endpoint.model}; add another endpoint for another model")
    for name, value in _checked({"url": endpoint.url, **fields}).items():
        setattr(endpoint, name, value)
    if key is not None:
        endpoint.key = encrypt(key)
    _cleaned(endpoint)
    endpoint.save()
    audit(
        actor=actor,
        action="endpoint.change",
        target=f"policy:{policy.pk}",
        before=before,
        after=_shown(endpoint),
        key="changed" if key is not None else "kept",
    )
    return endpoint


def endpoints() -> QuerySet[Endpoint]:
    """Endpoints of policies visible in the project."""
    rows = Endpoint.objects.select_related("policy", "created_by")
    return within(rows, path="policy__project_id", shared=True)


def get(name: str) -> Endpoint:
    """Raises NotFound."""
    found = endpoints().filter(policy__name=name).first()
    if found is None:
        raise NotFound("endpoint", name)
    return found


def asked(endpoint: Endpoint, *, effort: str = "") -> chat.Endpoint:
    """What a worker asks with. Raises UserError when the address may not be asked any more, or the key cannot be read."""
    return chat.Endpoint(
        url=check_url(endpoint.url),
        model=endpoint.model,
        key=decrypt(endpoint.key),
        effort=effort or endpoint.effort,
        limit_field=endpoint.limit_field,  # type: ignore[arg-type]
        temperature=endpoint.takes_temperature,
        parameters=endpoint.parameters,
        guard=safe_http.endpoints(),
    )


def prices(endpoint: Endpoint) -> dict[str, float]:
    """Dollars for a million tokens."""
    found = {"input": endpoint.price_input, "output": endpoint.price_output}
    return found if endpoint.price_cached is None else {**found, "cached": endpoint.price_cached}


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """Raises UserError that names the field."""
    found = dict(fields)
    found["url"] = check_url(str(found.get("url", "")))
    for name in ("price_input", "price_output", "price_cached"):
        price = found.get(name)
        if price is not None and not (math.isfinite(price) and 0 <= price <= 10_000):
            raise UserError(name, f"a price is 0 to 10,000 dollars for a million tokens, not {price}")
    parameters = found.get("parameters", {})
    if not isinstance(parameters, dict) or len(json.dumps(parameters)) > MAX_PARAMETERS:
        raise UserError("parameters", f"more fields are one JSON object of at most {MAX_PARAMETERS} characters")
    if taken := sorted(RESERVED & set(parameters)):
        raise UserError("parameters", f"{', '.join(taken)} is set by the harness; leave it out")
    return found


def _cleaned(row: Policy | Endpoint, exclude: list[str] | None = None) -> None:
    try:
        row.full_clean(exclude=exclude)
    except ValidationError as error:
        field, problems = next(iter(error.message_dict.items()))
        raise UserError(field, f"{field}: {problems[0]}") from error


def _shown(endpoint: Endpoint) -> dict[str, Any]:
    """For the audit log: never the key."""
    names = ("url", "model", "effort", "limit_field", "takes_temperature", "parameters")
    return {name: getattr(endpoint, name) for name in names} | {"prices": prices(endpoint)}
