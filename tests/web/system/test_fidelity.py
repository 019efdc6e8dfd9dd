"""The page of fidelity, its command and its worker's task, with real sandboxes."""

from __future__ import annotations

import json
from html import unescape
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils.text import capfirst

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.models import Outbox
from composer_web.core.queue import leases
from composer_web.system import fidelity, tasks
from sandbox.backends.namespaces.backend import NamespacesBackend
from tests.web.helpers import as_read

pytestmark = pytest.mark.django_db
PAGE = "/system/fidelity/"


@pytest.fixture(autouse=True)
def nothing_measured() -> None:
    artifacts().remove_tree(fidelity.FOLDER)


@pytest.fixture
def measured() -> fidelity.Kept:
    if not NamespacesBackend().probe().usable:
        pytest.skip("no sandboxes on this machine")
    return fidelity.measure(count=2)


def visitor(people: dict[str, User], role: str) -> Client:
    client = Client()
    client.force_login(people[role])
    return client


def test_an_empty_page_says_how_to_measure(people: dict[str, User]) -> None:
    html = visitor(people, "operator").get(PAGE).content.decode()
    assert "Not measured yet" in html and "manage.py fidelity" in html and "Measure now" in html
    assert "Measure now" not in visitor(people, "viewer").get(PAGE).content.decode()
    assert PAGE in visitor(people, "viewer").get("/system/").content.decode()
    with pytest.raises(CommandError, match="leave --last out"):
        call_command("fidelity", "--last")


def test_the_page_shows_score_tells_and_remedies(people: dict[str, User], measured: fidelity.Kept) -> None:
    assert measured.result is not None
    html = unescape(as_read(visitor(people, "viewer").get(PAGE).content))
    verdict = measured.result.verdict
    assert f'<div class="figure__value"> {verdict.score:.0f} <small>of 100</small>' in html
    for tell in verdict.tells:
        assert capfirst(tell.title) in html and capfirst(tell.remedy) in html
    assert "git status" in html and "cat /proc/self/cgroup" in html
    assert "sandbox/fidelity/machine.sh" in html, "what it was compared with"
    out = StringIO()
    call_command("fidelity", "--last", "--json", stdout=out)
    assert json.loads(out.getvalue())["result"]["verdict"]["score"] == verdict.score
    out = StringIO()
    call_command("fidelity", "--last", stdout=out)
    assert out.getvalue().startswith(f"namespaces: score {verdict.score:g} of 100")


def test_an_operator_asks_and_a_worker_measures_once(people: dict[str, User], monkeypatch: pytest.MonkeyPatch) -> None:
    assert visitor(people, "viewer").post(f"{PAGE}measure/").status_code == 403
    operator = visitor(people, "operator")
    for _ in range(2):
        assert operator.post(f"{PAGE}measure/", follow=True).status_code == 200
    asked = set(Outbox.objects.filter(task="ops.measure_fidelity").values_list("queue", "key"))
    assert asked == {("build", fidelity.LEASE)}, "the two are merged when they are sent"
    assert "every 3s" in operator.get(PAGE).content.decode(), "a measurement is under way"
    measured: list[int] = []
    monkeypatch.setattr(fidelity, "measure", lambda: measured.append(1))
    held = leases.take(fidelity.LEASE, owner="another worker", seconds=60)
    assert held is not None
    tasks.measure_fidelity()
    assert not measured, "another worker is at it"
    leases.release(held)
    tasks.measure_fidelity()
    assert measured == [1] and not leases.is_held(fidelity.LEASE)


def test_a_failure_is_shown_and_the_last_result_stays(
    people: dict[str, User], measured: fidelity.Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.fidelity.reference", lambda: (_ for _ in ()).throw(OSError("no such profile")))
    tasks.measure_fidelity()
    (kept,) = fidelity.kept()
    assert kept.problem == "OSError: no such profile" and kept.result == measured.result
    html = visitor(people, "viewer").get(PAGE).content.decode()
    assert "came to nothing: OSError: no such profile" in html and "of 100" in html
    with pytest.raises(CommandError, match="no such profile"):
        call_command("fidelity", "--count", "2")


def test_a_result_that_cannot_be_read_counts_as_none(people: dict[str, User]) -> None:
    artifacts().put(f"{fidelity.FOLDER}/namespaces", b'{"of": "another version"}')
    assert "Not measured yet" in visitor(people, "viewer").get(PAGE).content.decode()
