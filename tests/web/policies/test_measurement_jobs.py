"""Measurements asked for on the page, by API and by oc: named codebases, a process of its own, deadlines, deaths and stops."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import AuditEntry, User
from composer_web.accounts.projects import create_project
from composer_web.core.queue import leases
from composer_web.core.errors import Conflict, UserError
from composer_web.core.models import Lease, Outbox
from composer_web.env import env
from composer_web.datasets import codebases
from composer_web.policies.measurement import measurement_jobs, measurement_worker
from composer_web.policies.measurement.measurement_schemas import Wanted
from composer_web.policies.measurement.measuring import measured
from composer_web.policies.models import Measurement, MeasurementOrder, Policy
from composer_web.policies.services import import_base
from composer_web.repositories.models import Environment, Repository
from composer_web.system.reconcile import reconcile
from tests.trainer.model_selection.test_codebase import candidates, repository
from tests.web.cli.support import Cli, data, error
from tests.web.tasks.test_importing import checkout
from trainer.model_selection import measure

__all__ = ["candidates", "checkout", "repository"]
pytestmark = pytest.mark.django_db
FEW = {"window": 64, "items": 1, "changes": 1, "device": "cpu"}
PAST = "2020-01-01T00:00Z"


@pytest.fixture
def fresh(candidates: tuple[Path, Path]) -> Policy:
    return import_base(path=candidates[0], name="fresh")


@pytest.fixture
def shop(repository: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A repository of this machine, by name."""
    monkeypatch.setattr(env(), "git_roots", str(repository.parent))
    Repository.objects.create(name="shop", kind="path", location=str(repository))
    return "repository:shop"


def asked(policy: Policy, codebase: str, **more: object) -> MeasurementOrder:
    return measurement_jobs.ask(policy=policy, wanted=Wanted.model_validate({"codebase": codebase, **FEW, **more}))


def ended(order: MeasurementOrder) -> MeasurementOrder:
    measurement_worker.carry_out(order.pk)
    order.refresh_from_db()
    return order


@pytest.mark.integration
def test_from_the_page_to_figures(fresh: Policy, shop: str, people: dict[str, User]) -> None:
    operator, viewer = Client(), Client()
    operator.force_login(people["operator"])
    viewer.force_login(people["viewer"])
    html = operator.get("/policies/fresh/").content.decode()
    assert "<option>repository:shop</option>" in html and "Not measured yet" in html
    assert "Most KiB of it" not in viewer.get("/policies/fresh/").content.decode()
    form = {"version": "0", "codebase": shop, "commits": "1", "kib": "64", "window": "64", "items": "1"}
    assert viewer.post("/policies/fresh/measure/", form).status_code == 403
    html = operator.post("/policies/fresh/measure/", form, follow=True).content.decode()
    assert "The measurement is on its way" in html and "asked" in html and "by operator" in html
    (order,) = MeasurementOrder.objects.all()
    (sent,) = Outbox.objects.filter(task="policies.measure")
    assert (sent.queue, sent.kwargs) == ("io", {"order_id": order.pk})
    assert AuditEntry.objects.filter(action="measurement.ask", actor=people["operator"]).count() == 1
    operator.post("/policies/fresh/measure/", form)
    assert MeasurementOrder.objects.count() == 1, "asked twice, measured once"
    assert ended(order).state == "done" and order.measurement is not None and order.attempts == 1
    assert measurement_worker.carry_out(order.pk) == "nothing to do", "a second delivery"
    part = viewer.get("/policies/fresh/measured/", headers={"HX-Request": "true"}).content.decode()
    assert "shop" in part and "Read a second" in part and "KiB" in part and "<form" not in part
    (group,) = measured(fresh)
    assert group[0].found.before and group[0].found.codebase == "shop"


def test_what_cannot_be_read_is_said_at_once(
    fresh: Policy, shop: str, checkout: Environment, people: dict[str, User]
) -> None:
    Environment.objects.create(name="late", source="x")
    Repository.objects.create(name="far", kind="git", location="https://host.example/far.git")
    for codebase, more, field, words in (
        ("environment:none", {}, "codebase", "no environment 'none'"),
        ("environment:late", {}, "codebase", "is requested; use it when it is ready"),
        ("repository:far", {}, "codebase", "name environment:far"),
        ("corpus:none", {}, "codebase", "no corpus 'none'"),
        ("/etc", {}, "codebase", "write environment:NAME"),
        ("corpus:../run", {}, "codebase", "write environment:NAME"),
        ("environment:add", {"commits": 3}, "commits", "has no history"),
        (shop, {"since": "soon"}, "since", "write a date like 2026-01-31"),
        (shop, {"since": "2026-01-01", "commits": 2}, "since", "choose one"),
    ):
        with pytest.raises(UserError, match=words) as refused:
            asked(fresh, codebase, **more)
        assert refused.value.field == field
    with pytest.raises(UserError, match="no weights on disk"):
        measurement_jobs.ask(policy=fresh, version=7, wanted=Wanted(codebase=shop))
    assert not MeasurementOrder.objects.exists()
    client = Client()
    client.force_login(people["operator"])
    form = {"codebase": shop, "window": "1"}
    assert (
        "window: Input should be greater" in client.post("/policies/fresh/measure/", form, follow=True).content.decode()
    )


def test_corpora_by_name(checkout: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env(), "data", tmp_path)
    for name in ("prepared", "plain"):
        (tmp_path / "corpora" / name).mkdir(parents=True)
    (prepared := tmp_path / "corpora" / "prepared" / "documents.jsonl").write_text("")
    (prepared.parent / "provenance.json").write_text("{}")
    assert codebases.find("corpus:prepared") == codebases.Place("prepared", prepared, history=False)
    assert codebases.find("corpus:plain") == codebases.Place("plain", tmp_path / "corpora" / "plain", history=True)
    assert codebases.offered() == [("Environments", ["environment:add"]), ("Corpora", ["corpus:prepared"])]


@pytest.mark.slow
def test_an_environment_has_no_recent_lines(fresh: Policy, checkout: Environment) -> None:
    found = ended(asked(fresh, "environment:add"))
    assert (found.state, found.cause) == ("done", "") and found.measurement is not None
    assert (found.measurement.codebase, found.measurement.before) == ("add", "")


@pytest.mark.slow
def test_what_fails_later_ends_in_words(fresh: Policy, shop: str) -> None:
    found = ended(asked(fresh, shop, since="2027-01-01"))
    assert found.state == "failed" and "no commit since 2027-01-01" in found.cause
    assert measurement_jobs.of_page(fresh) == [found]
    assert "no weights on disk" in ended(gone(asked(fresh, shop), fresh)).cause


def gone(order: MeasurementOrder, policy: Policy) -> MeasurementOrder:
    policy.checkpoints.update(removed_at=PAST)
    return order


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed (signal 9), as a rule for lack of memory"),
        ("raise RuntimeError('CUDA out of memory')", "RuntimeError: CUDA out of memory"),
        ("pass", "it said nothing"),
        ("import time; time.sleep(600)", "not done after 0 minutes; measure less text"),
    ],
    ids=["killed", "broken", "silent", "slow"],
)
def test_a_process_that_gives_nothing(
    fresh: Policy, shop: str, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(measurement_worker, "COMMAND", (sys.executable, "-c", script))
    monkeypatch.setattr(measurement_worker, "LOOK_SECONDS", 0.05)
    if "sleep" in script:
        monkeypatch.setattr(measurement_worker, "MAX_SECONDS", 0.2)
    found = ended(asked(fresh, shop))
    assert found.state == "failed" and words in found.cause
    assert not leases.is_held(measurement_jobs.resource(found.pk))


def test_a_lost_worker_is_followed_by_another_and_then_by_words(fresh: Policy, shop: str) -> None:
    order = asked(fresh, shop)
    for attempt in (1, 2, 3):
        held = leases.take(measurement_jobs.resource(order.pk), owner="a", seconds=60)
        assert held is not None
        claimed = measurement_jobs.claim(order.pk, held)
        assert claimed is not None and claimed.attempts == attempt
        assert measurement_worker.carry_out(order.pk) == "another worker measures it"
        Lease.objects.update(expires_at=PAST)
        Outbox.objects.update(sent_at=PAST)
        MeasurementOrder.objects.update(created_at=PAST)
        assert [(f.target, f.problem) for f in reconcile()] == [(f"measurement {order.pk}", "its worker was lost")]
        assert Outbox.objects.filter(task="policies.measure", sent_at=None).count() == 1
        with pytest.raises(leases.LeaseLost):
            measurement_jobs.fail(claimed, leases.Held(held.resource, "a", held.token - 1, 1.0), "late")
    assert ended(order).state == "failed" and "3 workers were lost" in order.cause
    assert reconcile() == []


def test_a_lost_message_is_sent_again(fresh: Policy, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from composer_web.system import reconcile as reconciler

    order = asked(fresh, shop)
    Outbox.objects.update(sent_at=PAST)
    assert reconcile() == [], "it is young"
    MeasurementOrder.objects.update(created_at=PAST)
    monkeypatch.setattr(reconciler, "queue_depth", lambda: {"io": 3})
    assert reconcile() == [], "others wait before it"
    monkeypatch.setattr(reconciler, "queue_depth", lambda: {"io": 0})
    assert [f.target for f in reconcile(dry_run=True)] == [f"measurement {order.pk}"]
    reconcile()
    assert Outbox.objects.filter(task="policies.measure", sent_at=None).count() == 1


def test_somebody_stops_it(fresh: Policy, shop: str, people: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> None:
    order = asked(fresh, shop)
    alive: list[int] = []

    say = measurement_jobs.say

    def look(order: MeasurementOrder, *, doing: str, share: float) -> bool:
        """Stopped while it runs, by a person at the page."""
        if doing != "begins":
            operator = Client()
            operator.force_login(people["operator"])
            assert "It is stopped" in operator.post(f"/measurements/{order.pk}/stop/", follow=True).content.decode()
        return say(order, doing=doing, share=share)

    class Watched(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *words: object, **how: object) -> None:
            super().__init__(*words, **how)  # type: ignore[call-overload]
            alive.append(self.pid)

    script = "import time; print('{\"doing\": \"reads\", \"share\": 0.5}', flush=True); time.sleep(600)"
    monkeypatch.setattr(measurement_worker, "COMMAND", (sys.executable, "-c", script))
    monkeypatch.setattr(measurement_jobs, "say", look)
    monkeypatch.setattr(measurement_worker.subprocess, "Popen", Watched)
    assert measurement_worker.carry_out(order.pk) == "stopped: somebody stopped it"
    order.refresh_from_db()
    assert (order.state, order.cause) == ("stopped", "operator stopped it")
    with pytest.raises(ProcessLookupError):
        os.kill(alive[0], 0)
    with pytest.raises(Conflict, match="has ended already"):
        measurement_jobs.stop(order=order, actor=people["operator"])
    assert not Measurement.objects.exists()


@pytest.mark.slow
def test_the_process_ends_with_whoever_asked(candidates: tuple[Path, Path], repository: Path) -> None:
    """No worker is there to kill it when the worker itself was killed."""
    ask = measure.Asked(
        folder=candidates[0],
        policy="x",
        path=repository,
        codebase="shop",
        window=2,
        items=1000,
        changes=50,
        device="cpu",
    )
    with subprocess.Popen(
        measurement_worker.COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(ask.model_dump_json() + "\n")
        process.stdin.flush()
        assert measure.Told.model_validate_json(process.stdout.readline()).doing == "collects the files"
        threading.Thread(target=process.stdin.close, daemon=True).start()
        assert process.wait(60) == 1


def test_rows_say_no_more_than_is_true(fresh: Policy, shop: str) -> None:
    order = asked(fresh, shop)
    for changes in (
        {"state": "failed", "finished_at": PAST},
        {"state": "done"},
        {"finished_at": PAST},
        {"state": "stopped", "finished_at": PAST, "cause": ""},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            MeasurementOrder.objects.filter(pk=order.pk).update(**changes)


@pytest.mark.slow
def test_a_project_has_some_at_a_time_and_keeps_its_figures(fresh: Policy, shop: str) -> None:
    for number in range(measurement_jobs.MAX_OPEN):
        asked(fresh, shop, window=32 + number)
    with pytest.raises(Conflict, match="8 measurements of this project"):
        asked(fresh, shop, window=128)
    other = create_project(slug="other", name="Other", actor=None)
    with acting(Access(0, "operator", other.pk)):
        order = asked(fresh, shop)
    assert order.project_id == other.pk
    found = ended(order)
    assert found.measurement is not None and found.measurement.project_id == other.pk
    with acting(Access(0, "viewer", fresh.project_id, fresh.project_id)):
        assert measured(fresh) == [] and not measurement_jobs.orders().filter(pk=order.pk).exists()
    with acting(Access(0, "viewer", other.pk, other.pk, (fresh.project_id,))):
        assert len(measured(fresh)) == 1


@pytest.mark.slow
def test_by_api_and_command_line(
    fresh: Policy, shop: str, cli: Cli, people: dict[str, User], bearer: Callable[..., dict[str, str]],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    body = {"codebase": shop, **FEW}
    viewer, operator = bearer("viewer"), bearer("operator", "operate")
    address = "/api/v1/policies/fresh/measurements"
    assert Client().post(address, body, content_type="application/json", headers=viewer).status_code == 403
    answer = Client().post(address, {**body, "window": 1}, content_type="application/json", headers=operator)
    assert (answer.status_code, list(answer.json()["error"]["fields"])) == (422, ["window"])
    answer = Client().post(address, body, content_type="application/json", headers=operator)
    assert (answer.status_code, answer.json()["policy"], answer.json()["state"]) == (202, "fresh@0", "waiting")
    pk = answer.json()["id"]
    words = (
        "measurement-jobs",
        "create",
        "fresh",
        shop,
        "--window",
        "64",
        "--items",
        "1",
        "--changes",
        "1",
        "--device",
        "cpu",
    )
    assert data(cli(*words, "--json"))[0]["id"] == pk, "asked twice, measured once"
    assert [one["id"] for one in data(cli("measurement-jobs", "list", "--policy", "fresh", "--json"))] == [pk]
    assert data(cli("measurement-jobs", "list", "--policy", "none", "--json")) == []
    assert data(cli("measurement-jobs", "stop", str(pk), "--json"))[0]["cause"] == "operator stopped it"
    assert cli("measurement-jobs", "stop", str(pk), "--json")[0] == 1
    assert error(capsys)["code"] == "conflict"
    assert cli("measurement-jobs", "create", "fresh", "environment:none", "--json")[0] == 1
    assert error(capsys)["fields"].keys() == {"codebase"}

    monkeypatch.setattr(
        "opencomposer.waiting.time.sleep",
        lambda _: measurement_worker.carry_out(MeasurementOrder.objects.latest("pk").pk),
    )
    answer = cli(*words, "--follow", "--json")
    assert answer[0] == 0 and '"bytes_per_second"' in answer[1].splitlines()[-1]

    def stop(_: float) -> None:
        measurement_jobs.stop(order=MeasurementOrder.objects.latest("pk"), actor=None)

    monkeypatch.setattr("opencomposer.waiting.time.sleep", stop)
    assert cli(*words, "--since", "2026-01-20", "--follow", "--json")[0] == 1
    assert "is stopped: an operator of the machine stopped it" in error(capsys)["message"]
