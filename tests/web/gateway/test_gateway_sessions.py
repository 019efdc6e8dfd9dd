"""Recorded sessions: nothing secret is stored, signals are kept once, everything of a user can be deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import DatabaseError, IntegrityError
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from composer_web.accounts.models import DEFAULT_PROJECT, ApiToken, AuditEntry, Project, User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import UserError
from composer_web.env import REPOSITORY
from composer_web.gateway import configuration
from composer_web.gateway.models import Session, SessionTurn, SignalRow
from composer_web.gateway.redaction import redactor
from composer_web.gateway.serving import recording, transcripts
from composer_web.gateway.serving.generating import Reader, Written
from composer_web.gateway.serving.openai_types import ChatRequest
from composer_web.gateway.sessions import exporting, selectors
from composer_web.policies.models import Policy
from sandbox.formats import atif
from sandbox.harness.types import ToolCall
from tests.web.cli.support import Cli, data

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(300)]
BASE = REPOSITORY / "policies" / "base"
SECRETS = {
    "key": "sk-proj-AbCdEfGhIjKlMnOpQrSt123456",
    "cloud": "AKIAIOSFODNN7EXAMPLE",
    "git": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF123456",
    "mail": "ada.lovelace@example.org",
    "url": "postgresql://app:hunter2hunter2@db/x",
    "pair": 'DB_PASSWORD = "correct-horse-battery"',
    "own": "CUST-004217",
}


def everything_stored(pk: int) -> str:
    """All that is kept of a session, tokens decoded."""
    render = transcripts.renderer(BASE)
    session = Session.objects.get(pk=pk)
    turns = recording.turns_of(session)
    rows = [str(row) for model in (Session, SessionTurn, SignalRow) for row in model.objects.values()]
    tokens = [str(render.tokenizer.decode(turn.prompt_ids + turn.token_ids)) for turn in turns]
    return "\n".join([*rows, *tokens, *(turn.model_dump_json() for turn in turns)])


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_nothing_secret_is_stored(exchange: Callable[..., recording.Exchange], name: str) -> None:
    secret = SECRETS[name]
    core = {"url": "hunter2hunter2", "pair": "correct-horse-battery"}.get(name, secret)
    call = ToolCall(id="c", name="write_file", arguments={"path": "x", "content": f"a = 1\n{secret}\n"})
    recording.record(exchange(f"Please use {secret} here.\nThanks", f"I used {secret} there", calls=(call,)))
    session = Session.objects.get()
    stored = everything_stored(session.pk)
    assert core not in stored and "ada" not in stored.replace("ada.lovelace", "")
    assert "Thanks" in stored and "there" in stored, "the rest stays"
    (turn,) = recording.turns_of(session)
    assert turn.redacted_tokens > 0 and session.redactions >= 3
    assert len(turn.token_ids) == len(turn.logprobs) == len(turn.loss_mask)
    assert 0 < sum(turn.loss_mask) < len(turn.loss_mask), "fillers are not trained on, the rest is"


def test_what_is_no_secret_stays() -> None:
    for text in (
        "def total(a, b): return a + b",
        "user@host is no address",
        "pass the token count",
        "x = secrets.choice",
    ):
        assert redactor(()).text(text) == (text, 0)


def test_a_pattern_that_cannot_be_is_refused(db: None) -> None:
    for pattern, why in (("(", "no regular expression"), ("a*", "at least one character"), ("(a+)+b", "for ever")):
        with pytest.raises(UserError, match=why) as refused:
            configuration.change(values={"patterns": [pattern]})
        assert refused.value.field.startswith("patterns")
    with pytest.raises(UserError, match="malformed"):
        configuration.change(values={"reward": {"malformed": 0.5}})


def test_signals_are_kept_once_and_make_the_reward(
    exchange: Callable[..., recording.Exchange], bearer: Callable[..., dict[str, str]]
) -> None:
    recording.record(exchange("Fix it", calls=(ToolCall(id="c", name="nowhere", arguments={}),)))
    recording.record(exchange("And now?", "Which file do you mean?"))
    agent, reader = Client(headers=bearer("viewer", "gateway")), Client(headers=bearer("reviewer", "review", "read"))

    def send(*signals: dict[str, Any], client: Client = agent, session: str = "s") -> Any:
        body = {"session": session, "signals": list(signals)}
        return client.post("/api/v1/gateway/signals", body, content_type="application/json")

    accept = {"id": "1", "kind": "accept", "turn": 0}
    kept = {"id": "2", "kind": "edit_kept", "value": 0.5, "after": "30 minutes"}
    assert send(accept, kept).json() == {"new": 2, "known": 0}
    assert send(kept, accept).json() == {"new": 0, "known": 2}
    changed = send({**kept, "value": 1.0}, {"id": "3", "kind": "reject"})
    assert (changed.status_code, changed.json()["error"]["code"]) == (409, "conflict")
    assert SignalRow.objects.count() == 2, "all or none"
    for wrong, field in (
        ({"id": "4", "kind": "accept", "turn": 2}, "signals.0.turn"),
        ({"id": "4", "kind": "accept", "value": 2}, "signals.0"),
        ({"id": "4", "kind": "edit_kept", "value": 1}, "signals.0"),
        ({"id": "4", "kind": "smile"}, "signals.0.kind"),
        ({"id": "", "kind": "accept"}, "signals.0.id"),
    ):
        refused = send(wrong)
        assert refused.status_code == 422 and refused.json()["error"]["field"].startswith(field)
    assert send(accept, session="other").status_code == 404
    assert send(accept, client=reader).status_code == 403 and send(accept, client=Client()).status_code == 401
    assert agent.get("/api/v1/gateway/sessions").status_code == 403, "the gateway's scope reads nothing"
    pk = Session.objects.get().pk
    first, second = reader.get(f"/api/v1/gateway/sessions/{pk}").json()["recorded"]
    weights = {part["name"]: part["value"] * part["weight"] for part in first["parts"]}
    assert weights == {"edit_kept": 0.25, "accept": 1.0, "malformed": -1.0} and first["reward"] == 0.25
    assert first["malformed"] == "there is no tool 'nowhere'" and second["question"]
    assert second["reward"] == pytest.approx(0.25 - 0.25)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        SignalRow.objects.update(value=0.0)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        SignalRow.objects.all().delete()
    with pytest.raises(IntegrityError), transaction.atomic():
        SignalRow.objects.create(session_id=pk, client_id="9", kind="accept", value=3)


def test_everything_of_a_user_is_deleted(
    exchange: Callable[..., recording.Exchange],
    people: dict[str, User],
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    for session, user in (("a", "ada"), ("b", "ada"), ("c", "bob")):
        recording.record(exchange("Fix it", session=session, user=user))
    SignalRow.objects.create(session=Session.objects.get(client_id="a"), client_id="1", kind="accept")
    folders = {row.client_id: f"sessions/{row.pk}" for row in Session.objects.all()}
    with django_capture_on_commit_callbacks(execute=True):
        assert recording.erase(user="ada", actor=people["operator"]) == 2
    assert [row.client_id for row in Session.objects.all()] == ["c"] and not SignalRow.objects.exists()
    assert {name: bool(artifacts().children(folder)) for name, folder in folders.items()} == {
        "a": False,
        "b": False,
        "c": True,
    }
    entry = AuditEntry.objects.get(action="session.erase")
    assert entry.detail["sessions"] == 2 and "ada" not in json.dumps([entry.target, entry.detail])
    Session.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with django_capture_on_commit_callbacks(execute=True):
        assert recording.expire() == 1
    assert not SessionTurn.objects.exists()
    with pytest.raises(UserError):
        recording.erase(user="")


def test_after_a_new_secret_key_everything_of_a_user_is_still_deleted(
    exchange: Callable[..., recording.Exchange], people: dict[str, User], settings: Any
) -> None:
    recording.record(exchange("before", session="a"))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "the next one", [settings.SECRET_KEY]
    recording.record(exchange("after", session="b"))
    recording.record(exchange("another person's", session="c", user="bob"))
    assert len(set(Session.objects.values_list("subject", flat=True))) == 3
    assert recording.erase(user="ada", actor=people["operator"]) == 2
    assert [row.client_id for row in Session.objects.all()] == ["c"]


def test_a_token_of_a_project_records_into_no_session_of_another(exchange: Callable[..., recording.Exchange]) -> None:
    """The same name of the same person, with tokens of two projects, is two sessions."""
    other = Project.objects.create(slug="other", name="Other")
    recording.record(exchange("Fix it"))
    there = exchange("And this")
    caller = there.admitted.caller
    bound = replace(caller, token=ApiToken(user=caller.user, project=other))
    recording.record(replace(there, admitted=replace(there.admitted, caller=bound)))
    assert {(one.project_id, one.turns, one.opening) for one in Session.objects.filter(client_id="s")} == {
        (DEFAULT_PROJECT, 1, "Fix it"),
        (other.pk, 1, "And this"),
    }


def test_a_deletion_voids_what_other_processes_remember(
    exchange: Callable[..., recording.Exchange], people: dict[str, User]
) -> None:
    """Each process has a memory of its own, and only the database in common."""
    memories = [transcripts.Transcripts(), transcripts.Transcripts()]
    messages = [{"role": "user", "content": "Fix it"}, {"role": "assistant", "content": "done"}]
    again = ChatRequest.model_validate(
        {"model": "production", "messages": [*messages, {"role": "user", "content": "more"}]}
    )
    key = transcripts.PrefixDigests(again.messages[:2], [], "salt").keys[2]
    render = transcripts.renderer(BASE)
    said = transcripts.Known((*render.start(messages[:1]), *render.turn((), "done")))

    def goes_on(memory: transcripts.Transcripts, erasures: int) -> bool:
        return memory.prompt(again, render, salt="salt", context=4096, erasures=erasures).base is not None

    _, before = configuration.stored()
    for memory in memories:
        memory.remember(key, said, erasures=before)
        assert goes_on(memory, before)
    recording.record(exchange("Fix it"))
    for erase in (
        lambda: recording.erase(user="ada", actor=people["operator"]),
        lambda: recording.erase(user="never recorded"),
        lambda: recording.delete(session=Session.objects.get(), actor=people["operator"]),
    ):
        erase()
        _, after = configuration.stored()
        assert after > before
        for memory in memories:
            assert not goes_on(memory, after) and not memory._known
            memory.remember(key, said, erasures=before)
            assert not memory._known, "a request that came before the deletion leaves nothing"
            memory.remember(key, said, erasures=after)
            assert goes_on(memory, after)
        before = after
        recording.record(exchange("Fix it", user="bob"))
    assert recording.expire() == 0 and configuration.stored()[1] == before, "nothing was deleted"


def test_export_and_commands(exchange: Callable[..., recording.Exchange], cli: Cli) -> None:
    call = ToolCall(id="c1", name="grep", arguments={"pattern": "x"})
    recording.record(exchange("Fix it", "", calls=(call,)))
    session = Session.objects.get()
    document = exporting.as_atif(session)
    record, losses = atif.load(json.dumps(document))
    assert not len(losses)
    assert record.steps[0].calls[0].name == "grep" and record.steps[0].logprobs[0] == -0.1
    (row,) = exporting.jsonl(selectors.whole())
    assert json.loads(row)["turns"][0]["token_ids"] == list(record.steps[0].completion_token_ids)
    data(cli("gateway", "update", "retention_days=7", "--json"))
    assert configuration.settings_of().retention_days == 7 and configuration.settings_of().recording
    (change,) = AuditEntry.objects.filter(action="gateway.change").latest("pk").changes
    assert change["row"].startswith("gateway_channel:")
    told = [change[side]["configured"]["retention_days"] for side in ("before", "after")]
    assert told == [30, 7], "the database itself tells before and after"
    assert cli("gateway", "update", "retention_days=0")[0] == 1
    assert configuration.settings_of().retention_days == 7


def test_pages(exchange: Callable[..., recording.Exchange], people: dict[str, User]) -> None:
    clients = {role: Client() for role in people}
    for role, client in clients.items():
        client.force_login(people[role])
    recording.record(exchange("<script>alert(1)</script> fix", "<b>done</b>"))
    session = Session.objects.get()
    assert Client().get("/gateway/sessions/").status_code == 302
    assert clients["viewer"].get("/gateway/sessions/").status_code == 403
    assert clients["viewer"].get(f"/gateway/sessions/{session.pk}/").status_code == 403
    assert "2147483647" not in clients["reviewer"].get("/gateway/sessions/").content.decode()
    assert clients["reviewer"].get("/gateway/sessions/999/").status_code == 404
    page = clients["reviewer"].get(f"/gateway/sessions/{session.pk}/").content.decode()
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page and "<b>done</b>" not in page
    for form in ("jsonl", "atif"):
        assert clients["reviewer"].get(f"/gateway/sessions/{session.pk}/download.{form}").status_code == 200
    settings = clients["viewer"].get("/gateway/settings/").content.decode()
    assert "Nothing is promoted yet" in settings and "Save" not in settings
    assert clients["reviewer"].post("/gateway/settings/change/", {}).status_code == 403
    assert clients["reviewer"].post(f"/gateway/sessions/{session.pk}/delete/").status_code == 403
    form = {
        "recording": "on", "retention_days": "9", "patterns": "", "requests_per_minute": "60", "most_tokens": "100",
        "answer_seconds": "30", "endpoints": "", "edit_tools": "edit_file",
        "reward-accept": "2", "reward-reject": "-1", "reward-edit_kept": "1", "reward-dissatisfied": "-1",
        "reward-latency": "0", "reward-latency_free": "1", "reward-malformed": "-2", "reward-question": "-1",
    }  # fmt: skip
    done = clients["operator"].post("/gateway/settings/change/", form, follow=True).content.decode()
    assert "Gateway settings saved" in done and configuration.settings_of().reward.accept == 2
    wrong = clients["operator"].post("/gateway/settings/change/", {**form, "retention_days": "x"}, follow=True)
    assert "retention_days" in wrong.content.decode()
    missing = {"task": "none", "slug": "s-1", "instruction": "Fix it"}
    refused = clients["reviewer"].post(f"/gateway/sessions/{session.pk}/drafts/", missing, follow=True).content.decode()
    assert "no rollout of a task" in refused
    with CaptureQueriesContext(connection) as few:
        clients["reviewer"].get("/gateway/sessions/")
    for n in range(5):
        recording.record(exchange("more", session=f"n{n}"))
    with CaptureQueriesContext(connection) as many:
        clients["reviewer"].get("/gateway/sessions/")
    assert len(many) == len(few) <= 10
    clients["operator"].post("/gateway/erase/", {"user": "ada"})
    assert not Session.objects.exists()


def test_what_is_shown_of_a_part_begins_what_is_shown_of_the_whole(base: Policy) -> None:
    render = transcripts.renderer(BASE)
    reader = Reader(render, tools=True, thinking=False, stops=("STOP",))
    said = "First I look.\nThen é → ü I STOP now"
    ids = render.turn((), said)
    final = reader.final(Written(token_ids=ids), prefix="c")[0].text
    assert final == "First I look.\nThen é → ü I "
    for end in range(1, len(ids)):
        assert final.startswith(reader.partial(ids[:end]).text)
    call = render.turn((ToolCall(id="x", name="grep", arguments={"pattern": "x"}),))
    reader = Reader(render, tools=True, thinking=False, stops=("STOP",))
    assert [reader.partial(call[:end]).text for end in range(1, len(call))] == [""] * (len(call) - 1)
