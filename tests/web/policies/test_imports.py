"""Models imported by page, API and command line: what becomes of them, and why one was refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.errors import Conflict, UserError
from composer_web.core.models import Outbox
from composer_web.policies.imports import orders, worker
from composer_web.policies.models import Policy, PolicyImport
from composer_web.policies.selectors import resolve
from composer_web.policies.services import import_base
from composer_web.system.reconcile import reconcile
from tests.trainer.policy.importing.gguf_files import write_gguf
from tests.web.cli.support import Cli, data

pytestmark = pytest.mark.django_db


def carried_out(order: PolicyImport) -> PolicyImport:
    worker.carry_out(order.pk)
    order.refresh_from_db()
    return order


@pytest.mark.integration
@pytest.mark.timeout(400)  # a process of its own loads torch and the library
def test_from_the_page_to_a_policy(tmp_path: Path, people: dict[str, User]) -> None:
    path = write_gguf(tmp_path / "tiny.Q8_0.gguf")
    operator, viewer = Client(), Client()
    operator.force_login(people["operator"])
    viewer.force_login(people["viewer"])
    html = operator.get("/policies/").content.decode()
    assert "Import a model" in html and "<option>chatml-tools</option>" in html and "<option>kimi-k2</option>" in html
    assert "Import a model" not in viewer.get("/policies/").content.decode()
    form = {"name": "tiny", "path": str(path), "template": "", "renderer": "auto"}
    assert viewer.post("/policies/import/", form).status_code == 403
    html = operator.post("/policies/import/", form, follow=True).content.decode()
    assert "The import is on its way" in html and str(path) in html
    (order,) = PolicyImport.objects.all()
    (sent,) = Outbox.objects.filter(task="policies.import")
    assert (sent.queue, sent.kwargs) == ("io", {"import_id": order.pk})
    assert AuditEntry.objects.filter(action="policy.import", actor=people["operator"]).count() == 1
    with pytest.raises(Conflict, match="'tiny' is being imported"):
        orders.ask(name="tiny", path=str(path))

    assert carried_out(order).state == "done", order.cause
    assert worker.carry_out(order.pk) == "nothing to do", "a second delivery"
    policy = Policy.objects.get(name="tiny")
    assert order.policy == policy and policy.template_problem == "" and policy.facts["renderer"] == "qwen3"
    assert (resolve("tiny").path / "model.safetensors").is_file()
    html = viewer.get("/policies/tiny/").content.decode()
    for words in ("qwen3", "GGUF Q8_0, dequantised to bfloat16", "128 tokens", "It has all that episodes need"):
        assert words in html
    part = viewer.get("/policies/imports/", headers={"HX-Request": "true"}).content.decode()
    assert 'href="/policies/tiny/"' in part and "hx-get" not in part, "what has ended is there to be opened"


@pytest.mark.slow
def test_the_api_tells_why_a_model_was_refused(tmp_path: Path, bearer, people: dict[str, User]) -> None:  # type: ignore[no-untyped-def]
    head = bearer("operator", "operate")
    wanted = {"name": "none", "path": str(tmp_path / "model.bin"), "renderer": "qwen3"}
    assert Client().post("/api/v1/policies", wanted, content_type="application/json", headers=bearer("viewer")).status_code == 403
    for body, field in (
        ({**wanted, "renderer": "qwen33"}, "renderer"),
        ({**wanted, "path": "model.bin"}, "path"),
        ({**wanted, "name": "a/b"}, "name"),
    ):
        answer = Client().post("/api/v1/policies", body, content_type="application/json", headers=head)
        assert answer.status_code == 422 and field in answer.json()["error"]["field"]
    answer = Client().post("/api/v1/policies", wanted, content_type="application/json", headers=head)
    assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
    order = carried_out(PolicyImport.objects.get(pk=answer.json()["id"]))
    told = Client().get(f"/api/v1/policy-imports/{order.pk}", headers=head).json()
    assert (told["state"], told["policy"]) == ("failed", None)
    assert "it does not exist" in told["cause"] and "Name a folder" in told["cause"]
    operator = Client()
    operator.force_login(people["operator"])
    assert "It does not exist" in operator.get("/policies/").content.decode() or "it does not exist" in (
        operator.get("/policies/imports/").content.decode()
    )


def test_the_command_line_asks_and_lists(tmp_path: Path, cli: Cli) -> None:
    template = tmp_path / "own.jinja"
    template.write_text("{{ messages[0].content }}")
    assert cli("policies", "create", "mine", "/models/mine", "--template", str(template), "--renderer", "template")[0] == 0
    order = PolicyImport.objects.get()
    assert (order.name, order.path, order.template, order.renderer) == (
        "mine", "/models/mine", "{{ messages[0].content }}", "template",
    )  # fmt: skip
    assert [row["name"] for row in data(cli("policy-imports", "list", "--json"))] == ["mine"]


def test_an_import_whose_message_was_lost_is_sent_again() -> None:
    order = orders.ask(name="mine", path="/models/mine")
    PolicyImport.objects.filter(pk=order.pk).update(state="running", created_at="2020-01-01T00:00Z")
    found = [repair for repair in reconcile(dry_run=False) if repair.target == f"import {order.pk}"]
    assert len(found) == 1 and found[0].problem == "its worker was lost"
    order.refresh_from_db()
    assert order.state == "waiting"


def test_workers_that_are_lost_again_and_again_end_it_with_a_remedy() -> None:
    order = orders.ask(name="mine", path="/models/mine")
    PolicyImport.objects.filter(pk=order.pk).update(attempts=orders.MAX_ATTEMPTS)
    assert carried_out(order).state == "failed"
    assert "more memory" in order.cause


def test_what_cannot_be_asked_for_names_its_field() -> None:
    import_base(path=Path("policies/base").resolve(), name="base", toy=True)
    for fields, field in (
        ({"name": "", "path": "/x"}, "name"),
        ({"name": "x", "path": "relative"}, "path"),
        ({"name": "x", "path": "/x", "renderer": "none"}, "renderer"),
    ):
        with pytest.raises(UserError) as refused:
            orders.ask(**fields)
        assert refused.value.field == field
    for number in range(orders.MAX_OPEN):
        orders.ask(name=f"x{number}", path="/x")
    with pytest.raises(Conflict, match="wait until one has ended"):
        orders.ask(name="y", path="/x")
