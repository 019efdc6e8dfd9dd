"""Every operation of the API against its own description, by schemathesis: no 5xx, and answers that fit their schema.

A few derandomised examples an operation; `make fuzz-api EXAMPLES=50 SEED=7` draws more. Each example runs in a
savepoint of a small, lively product, so that none sees what another did.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import schemathesis
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, connection, transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as drawing
from hypothesis import strategies as st
from pydantic import BaseModel
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from composer_web.accounts.services import create_token
from composer_web.api_root import api
from composer_web.evals.models import Evaluation
from composer_web.gateway.models import Session
from composer_web.policies.models import Policy
from composer_web.review.models import Queue
from composer_web.rollouts.models import Finding, Group, Rollout
from composer_web.tasks.models import Suite, Task
from tests.browser import seed as small

pytestmark = pytest.mark.timeout(600)  # the first of a module waits for the seeding
EXAMPLES = int(os.environ.get("API_EXAMPLES", "1"))
SEED = int(os.environ.get("API_SEED", "0"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
FOR_CLIENTS = ("/gateway/signals", "/gateway/own-sessions/{client_id}")
"""Operations that take a token of the gateway's scope only."""

schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application())
OPERATIONS = {found.ok().label.replace("/api/v1", ""): found.ok() for found in schema.get_all_operations()}


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: Any) -> Iterator[small.World]:
    """Seeded once for the module, undone after it."""
    signals = (request_started, request_finished)
    for (
        signal
    ) in signals:  # as Django's own client does: a request must not take the connection of the transaction away
        signal.disconnect(close_old_connections)
    with django_db_blocker.unblock(), transaction.atomic():
        yield small.world(groups=3, steps=6)
        transaction.set_rollback(True)
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.fixture
def db(world: small.World, django_db_blocker: Any) -> Iterator[None]:
    """Instead of pytest-django's, whose transaction would end before the module's; the name has it make the database."""
    with django_db_blocker.unblock():
        yield


@pytest.fixture(scope="module")
def credentials(world: small.World) -> dict[str, dict[str, dict[str, str]]]:
    """What an administrator's browser sends, and what a client of the gateway does."""
    browser = Client()
    browser.force_login(world.people["admin"])
    token = "a" * 32
    cookies = {settings.SESSION_COOKIE_NAME: browser.session.session_key, settings.CSRF_COOKIE_NAME: token}
    _, secret = create_token(user=world.people["operator"], name="gateway", scopes=["gateway"])
    return {
        "browser": {"headers": {"X-CSRFToken": token}, "cookies": cookies},
        "gateway": {"headers": {"Authorization": f"Bearer {secret}"}},
    }


@pytest.fixture(scope="module")
def there(world: small.World) -> dict[str, Any]:
    """Path parameters that name something that exists."""
    return {
        "run_id": world.run.pk,
        "rollout_id": Rollout.objects.latest("pk").pk,
        "rollout": Rollout.objects.latest("pk").pk,
        "group_id": Group.objects.latest("pk").pk,
        "finding_id": Finding.objects.latest("pk").pk,
        "evaluation_id": Evaluation.objects.latest("pk").pk,
        "session_id": Session.objects.latest("pk").pk,
        "client_id": Session.objects.latest("pk").client_id,
        "slug": Task.objects.latest("pk").slug,
        "suites": Suite.objects.latest("pk").name,
        "policies": Policy.objects.latest("pk").name,
        "review": Queue.objects.latest("pk").name,
    }


def existing(operation: APIOperation, there: dict[str, Any]) -> dict[str, Any]:
    """Those of its path parameters that name something, by what is there; a `name` is that of the first part's kind."""
    noun = operation.path.removeprefix("/api/v1/").partition("/")[0]
    known = {**there, "name": there.get(noun)}
    wanted = [parameter.name for parameter in operation.path_parameters]
    return {name: known[name] for name in wanted if known.get(name) is not None}


@pytest.mark.slow
@pytest.mark.parametrize("label", OPERATIONS)
def test_no_input_breaks_it(label: str, db: None, credentials: dict[str, Any], there: dict[str, Any]) -> None:
    operation = OPERATIONS[label]
    who = credentials["gateway" if label.endswith(FOR_CLIENTS) else "browser"]
    fixed = existing(operation, there)
    cases = [operation.as_strategy(GenerationMode.POSITIVE, path_parameters=fixed or None)]
    cases.append(operation.as_strategy(GenerationMode.POSITIVE))
    if operation.body or operation.query or operation.path_parameters:
        cases.append(operation.as_strategy(GenerationMode.NEGATIVE))

    @seed(SEED)
    @drawing(
        max_examples=EXAMPLES * len(cases),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(cases))
    def check(case: Case) -> None:
        with transaction.atomic():
            answer = case.call(**who)
            connection.check_constraints()
            transaction.set_rollback(True)
        case.validate_response(answer, checks=CHECKS)

    check()


def models_within(model: Any, found: set[type[BaseModel]]) -> None:
    """Every model that a body may hold, at any depth."""
    if isinstance(model, type) and issubclass(model, BaseModel) and model not in found:
        found.add(model)
        for field in model.model_fields.values():
            models_within(field.annotation, found)
    for part in get_args(model):
        models_within(part, found)


def test_a_field_that_no_body_names_is_refused() -> None:
    """Mass assignment: nothing is taken over, or silently left out, because a client wrote it."""
    bodies: set[type[BaseModel]] = set()
    for _, router in api._routers:
        for view in router.path_operations.values():
            for operation in view.operations:
                for wrapper in operation.models:
                    if wrapper.__ninja_param_source__ == "body":
                        for field in wrapper.model_fields.values():
                            models_within(field.annotation, bodies)
    assert len(bodies) > 40
    assert not sorted(body.__name__ for body in bodies if body.model_config.get("extra") != "forbid")
