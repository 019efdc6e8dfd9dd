"""The red team's table in the product: the page, the command, and what stands there before anybody played."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from composer_web.accounts.models import User
from composer_web.rollouts.http import redteam_views
from composer_web.rollouts.management.commands import redteam as command
from sandbox.grading.redteam import Outcome, RedTeam, Row, save
from sandbox.grading.verdict.outcomes import Cause, Verdict
from tests.web.helpers import as_read

pytestmark = pytest.mark.django_db
FAILED = Outcome(verdict=Verdict.FAILED, outcome=Cause.TAMPERED, cause="a canary", rules=("canary-passed", "odd-path"))
PASSED = Outcome(verdict=Verdict.PASSED, outcome=Cause.ALL_PASSED)


def row(exploit: str, backend: str, outcome: Outcome = FAILED, honest: Outcome = PASSED) -> Row:
    return Row(
        id=exploit, title=f"tries {exploit}", defence="a <b>wall</b>", backend=backend, task="ledger", exploit=outcome,
        honest=honest, wanted=("canary-passed",), unguarded=True,
    )  # fmt: skip


def table(*rows: Row) -> RedTeam:
    return RedTeam(
        at=datetime(2026, 5, 4, 3, 2, tzinfo=UTC), commit="abc1234", machine={"cpus": 2}, seconds=61.0,
        backends=tuple(dict.fromkeys(row.backend for row in rows)), left_out={"docker": "no engine answers"}, rows=rows,
    )  # fmt: skip


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    class Settings:
        data = tmp_path

    for module in (redteam_views, command):
        monkeypatch.setattr(module, "env", Settings)
    return tmp_path


@pytest.fixture
def page(client: Client) -> Client:
    client.force_login(User.objects.create_user("v", password="p", role="viewer"))
    return client


def shown(client: Client) -> str:
    answer = client.get(reverse("rollouts:redteam"))
    assert answer.status_code == 200
    return as_read(answer.content)


def test_before_anybody_played_the_page_says_how(page, data):
    assert "make redteam" in shown(page) and "No table yet" in shown(page)
    with pytest.raises(CommandError, match="make redteam"):
        call_command("redteam")


def test_the_page_shows_each_exploit_on_each_backend(page, data):
    rows = [row(exploit, backend) for backend in ("namespaces", "gvisor") for exploit in ("B10", "A1", "B9")]
    save(data, table(*rows))
    text = shown(page)
    places = [text.index(f">{exploit}<") for exploit in ("A1", "B9", "B10")]
    assert places == sorted(places), "in the order of the catalogue"
    assert text.count("scores 0") == 6 and text.count("passes") == 6
    for words in ("abc1234", "2026-05-04 03:02", "left out: no engine answers", "Gvisor", "?rule=canary-passed"):
        assert words in text
    assert "a &lt;b&gt;wall" in text and "not as they have to be" not in text
    out = StringIO()
    call_command("redteam", stdout=out)
    assert "0 of 6 exploits score, 6 of 6 honest runs pass" in out.getvalue()


def test_faults_are_told(page, data):
    save(data, table(row("A1", "namespaces", PASSED), row("A2", "namespaces", honest=FAILED)))
    text = shown(page)
    assert "2 rows are not as they have to be" in text and "not to be trusted" in text
    assert "the exploit is passed" in text and "the honest run is failed" in text
    with pytest.raises(CommandError, match="2 rows"):
        call_command("redteam", stdout=StringIO())


def test_a_damaged_table_is_none(page, data):
    (data / "redteam.json").write_text('{"format": 1, "rows": 3}')
    assert "No table yet" in shown(page)


def test_the_page_asks_who_it_is_and_the_findings_lead_to_it(client, page, data):
    assert reverse("rollouts:redteam") in page.get(reverse("rollouts:findings")).content.decode()
    assert Client().get(reverse("rollouts:redteam")).status_code == 302
