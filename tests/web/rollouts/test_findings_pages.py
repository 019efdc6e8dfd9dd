"""Findings where people and programs meet them: pages, API, and the language model as judge."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from composer_web.accounts.models import User
from composer_web.core.models import Outbox
from composer_web.env import env
from composer_web.rollouts.dispatch import findings
from composer_web.rollouts.models import Finding, Group, Rollout
from composer_web.rollouts.worker import llm_judge, tasks
from composer_web.tasks.models import Task
from sandbox.grading.audit.judge import Endpoint, Judge
from tests.sandbox.grading.audit.model_server import Server, answers, completion
from tests.web import cheating
from tests.web.cheating import finish

pytestmark = pytest.mark.django_db
wide, groups = cheating.wide, cheating.groups


def client(person: User) -> Client:
    made = Client()
    made.force_login(person)
    return made


def test_pages_show_the_finding_where_it_is(groups: list[Group], people: dict[str, User]) -> None:
    group = finish(groups[0], {1: True})
    finding = Finding.objects.get(group=group)
    reader = client(people["viewer"])
    html = reader.get("/findings/").content.decode()
    assert "early-exit" in html and f"/rollouts/{finding.rollout_id}/#t=0" in html and "in quarantine" in html
    page = reader.get(f"/rollouts/{finding.rollout_id}/").content.decode()
    assert page.count("early-exit") >= 2 and "m.py, line 2: os._exit(0)" in page
    assert 'name="state" value="confirmed"' not in page, "a viewer decides nothing"
    assert "advantage" not in page, "it is not trained on"
    detail = reader.get(f"/findings/{finding.pk}/").content.decode()
    for words in ("Product code ends the process", "Known false positives", "auditor", "B7"):
        assert words in detail, words
    assert reader.get("/findings/999999/").status_code == 404


def test_a_finding_keeps_the_name_of_its_task(groups: list[Group], people: dict[str, User]) -> None:
    """By which the list is narrowed and sorted; it follows the task when that is renamed."""
    group = finish(groups[0], {1: True})
    task = group.task_version.task
    assert Finding.objects.get(group=group).slug == task.slug
    Task.objects.filter(pk=task.pk).update(slug="another-name")
    assert Finding.objects.get(group=group).slug == "another-name"
    reader = client(people["viewer"])
    assert "another-name" in reader.get("/findings/?task=Another").content.decode()
    assert "another-name</span>" not in reader.get(f"/findings/?task={task.slug}").content.decode()


@pytest.mark.parametrize(
    ("query", "count"),
    [("severity=high", 1), ("severity=low", 0), ("rule=early-exit", 1), ("state=open", 1),
     ("state=dismissed", 0), ("task=zzz", 0), ("quarantined=true", 1), ("subject=run", 0)],
)  # fmt: skip
def test_facets_narrow_the_list(groups: list[Group], people: dict[str, User], query: str, count: int) -> None:
    finish(groups[0], {1: True})
    rows = client(people["viewer"]).get(f"/findings/?{query}", headers={"HX-Request": "true"}).content.decode()
    assert rows.count("os._exit") == 0 and rows.count("/findings/") - rows.count("/findings/?") >= count
    assert (">early-exit<" in rows) == bool(count)


def test_what_is_counted_around_the_list_is_fetched_as_the_page_shows_it(
    groups: list[Group], people: dict[str, User]
) -> None:
    finish(groups[0], {1: True})
    reader = client(people["viewer"])
    for query, seen in (("severity=high", True), ("severity=low", False)):
        page, part = (reader.get(f"/findings/{where}?{query}").content.decode() for where in ("", "figures/"))
        assert part.count('class="figure"') == page.count('class="figure"') == 5
        for words in ("Product code ends the process", f'href="?{query.replace("&", "&amp;")}&amp;rule=early-exit"'):
            assert (words in part) == (words in page) == seen
    assert '<div id="rules" hx-swap-oob="innerHTML">' in part, "also when nothing is left"


def test_a_run_can_be_audited_again_from_its_findings(groups: list[Group], people: dict[str, User]) -> None:
    run = finish(groups[0], {1: True}).run
    assert run is not None
    finding = Finding.objects.get(run=run)
    frame = f'data-frame-run="{run.pk}"'
    assert frame in client(people["viewer"]).get(f"/findings/{finding.pk}/").content.decode()
    assert frame in client(people["viewer"]).get(f"/findings/?run={run.pk}&severity=high").content.decode()
    assert "runframe" not in client(people["viewer"]).get("/findings/").content.decode()
    words = f"Audit run {run.pk} again"
    assert words in client(people["reviewer"]).get(f"/findings/?run={run.pk}").content.decode()
    assert words not in client(people["viewer"]).get(f"/findings/?run={run.pk}").content.decode()
    assert client(people["viewer"]).post(f"/findings/audit/{run.pk}/").status_code == 403
    answer = client(people["reviewer"]).post(f"/findings/audit/{run.pk}/", follow=True)
    assert "The auditor reads this run again." in answer.content.decode()
    assert Outbox.objects.filter(task="rollouts.audit_run").count() == 1
    for odd, status in (("x", 422), ("²", 422), ("99999999999999", 200)):
        assert client(people["reviewer"]).get(f"/findings/?run={odd}").status_code == status


def test_who_may_decide(groups: list[Group], people: dict[str, User]) -> None:
    finding = Finding.objects.get(group=finish(groups[0], {1: True}))
    path = f"/findings/{finding.pk}/decide/"
    assert client(people["viewer"]).post(path, {"state": "dismissed"}).status_code == 403
    assert client(people["reviewer"]).get(path).status_code == 405
    answer = client(people["reviewer"]).post(path, {"state": "dismissed", "note": "fine", "next": "//evil.example/"})
    assert answer["Location"] == f"/findings/{finding.pk}/"
    finding.refresh_from_db()
    assert (finding.state, finding.note) == ("dismissed", "fine")
    answer = client(people["reviewer"]).post(path, {"state": "nonsense", "next": "/findings/"}, follow=True)
    assert "a finding can be open, confirmed or dismissed" in answer.content.decode()


def test_lists_ask_the_database_the_same_number_of_times(groups: list[Group], people: dict[str, User]) -> None:
    finish(groups[0], {1: True})
    reader = client(people["viewer"])

    def queries(path: str) -> int:
        reader.get(path)
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert reader.get(path).status_code == 200
        return len(seen)

    few = queries("/findings/")
    finish(groups[1], {0: True, 1: False})
    finish(groups[2], {0: True, 2: False})
    assert Finding.objects.filter(subject="rollout").count() == 5
    assert queries("/findings/") == few <= 12


def test_api_twin(groups: list[Group], bearer: Callable[..., dict[str, str]]) -> None:
    finding = Finding.objects.get(group=finish(groups[0], {1: True}))
    read, review = bearer("reviewer", "read"), bearer("reviewer", "review")
    listed = Client().get("/api/v1/findings?severity=high", headers=read).json()
    assert [item["id"] for item in listed["items"]] == [finding.pk] and listed["items"][0]["quarantined"] is True
    assert listed["items"][0]["evidence"][0]["turn"] == 0
    path = f"/api/v1/findings/{finding.pk}/dismiss"
    body = json.dumps({"note": "asked for"})
    assert Client().post(path, body, content_type="application/json", headers=read).status_code == 403
    done = Client().post(path, body, content_type="application/json", headers=review)
    assert done.status_code == 200 and done.json()["state"] == "dismissed" and done.json()["decided_by"] == "reviewer"
    assert [t["to_state"] for t in done.json()["transitions"]] == ["open", "dismissed"]
    again = Client().post(path, body, content_type="application/json", headers=review)
    assert again.status_code == 409 and "possible: confirmed, open" in again.json()["error"]["message"]
    assert Client().get("/api/v1/findings?severity=wrong", headers=read).status_code == 422
    rules = {rule["id"]: rule for rule in Client().get("/api/v1/findings/rules", headers=read).json()}
    assert "B7" in rules["early-exit"]["exploits"]
    asked = Client().post(f"/api/v1/findings/audit?run={finding.run_id}", headers=review)
    assert asked.status_code == 202
    assert Client().post("/api/v1/findings/audit?run=999999", headers=review).status_code == 404


# --- the language model -----------------------------------------------------------------------------------------


def test_the_judge_reads_stored_rollouts_once(groups: list[Group]) -> None:
    group = finish(groups[0], {1: True})
    rollout = Rollout.objects.get(group=group, sample=1)
    server = Server()
    try:
        server.reply = lambda r: (200, completion(answers(r, tampering=("yes", 0, "os._exit(0)"))))
        judge = Judge(Endpoint(server.url, "model-a", timeout=20.0), cache=llm_judge.ArtifactCache())
        assert llm_judge.judge_rollout(rollout=rollout, judge=judge) == 1
        assert llm_judge.judge_rollout(rollout=rollout, judge=judge) == 0
    finally:
        server.close()
    assert len(server.requests) == 1
    finding = Finding.objects.get(source="judge")
    assert (finding.rule, finding.severity, finding.evidence[0]["turn"]) == ("judge-tampering", "medium", 0)
    findings.audit_run(run=group.run, everything=True)
    finding.refresh_from_db()
    assert finding.state == "open", "the rules do not speak for the judge"


def test_the_draw_of_the_judge_is_fixed() -> None:
    drawn = [llm_judge.chosen(pk, 0.25) for pk in range(4000)]
    assert drawn == [llm_judge.chosen(pk, 0.25) for pk in range(4000)]
    assert 0.2 < sum(drawn) / 4000 < 0.3
    assert not any(llm_judge.chosen(pk, 0.0) for pk in range(100)) and all(
        llm_judge.chosen(pk, 1.0) for pk in range(100)
    )


def test_the_judge_reads_a_whole_run_when_asked(
    groups: list[Group], bearer: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = finish(groups[0], {1: True})
    path, review = f"/api/v1/findings/audit?run={group.run_id}&judge=true", bearer("reviewer", "review")
    refused = Client().post(path, headers=review)
    assert refused.status_code == 422 and "OPENCOMPOSER_JUDGE_URL" in refused.json()["error"]["message"]
    server = Server()
    try:
        monkeypatch.setattr(env(), "judge_url", server.url)
        monkeypatch.setattr(env(), "judge_model", "model-a")
        server.reply = lambda r: (200, completion(answers(r, tampering=("yes", 0, "os._exit(0)"))))
        assert Client().post(path, headers=review).status_code == 202
        assert Outbox.objects.filter(task="rollouts.judge_run", kwargs__run_id=group.run_id).count() == 1
        tasks.judge_run(run_id=group.run_id)
        asked = len(server.requests)
        tasks.judge_run(run_id=group.run_id)
        assert len(server.requests) == asked, "what it has said is kept"
    finally:
        server.close()
    assert Finding.objects.filter(source="judge", rollout__group=group).count() == asked == 1
