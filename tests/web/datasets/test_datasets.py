"""Datasets of conversations: of files and good rollouts, decontaminated, and named by the runs that learn from them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import IntegrityError, transaction
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import Conflict, NotFound, UserError
from composer_web.core.models import Outbox
from composer_web.datasets import choosing, guards, selectors, services
from composer_web.datasets.models import Dataset
from composer_web.datasets.schemas import Wanted
from composer_web.datasets.tasks import prepare as prepare_task
from composer_web.env import REPOSITORY
from composer_web.policies.models import Policy
from composer_web.rollouts.dispatch import services as rollouts
from composer_web.rollouts.models import Group, Quarantine, Rollout
from composer_web.runs import services as runs
from composer_web.runs.launch.plan import what_will_run
from composer_web.runs.models import Run
from composer_web.runs.training.stages import dataset_folder
from composer_web.tasks.models import Suite
from sandbox.harness.profile import get_profile
from sandbox.harness.session import schema_hash_of
from sandbox.harness.types import ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.procedural import generate
from tests.web.making import SMALL, claim, finish, trajectory
from trainer import policy as policies
from trainer.config import RunConfig
from trainer.sft.conversations.store import conversations
from trainer.sft.conversations.streams import streams
from trainer.toy.preset import toy_sft
from trainer.types import Segment, Trajectory, Turn

pytestmark = pytest.mark.django_db
BASE = REPOSITORY / "policies" / "base"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(services, "root", lambda: tmp_path / "datasets")
    monkeypatch.setattr(services, "incoming", lambda: tmp_path / "incoming")
    monkeypatch.setattr(selectors, "incoming", lambda: tmp_path / "incoming")
    (tmp_path / "incoming").mkdir()
    return tmp_path


def rows(count: int, first: int = 0) -> bytes:
    return b"".join(
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": f"question {n}"},
                    {"role": "assistant", "content": f"answer {n}"},
                ]
            }
        ).encode()
        + b"\n"
        for n in range(first, first + count)
    )


def made(name: str = "mine", *, count: int = 12, data: bytes = b"", **wanted: Any) -> Dataset:
    files = {"rows.jsonl": io.BytesIO(data or rows(count))} if count or data else {}
    asked = services.ask(name=name, wanted=Wanted(**wanted), files=files)
    services.write(asked.pk)
    return selectors.get_dataset(asked.pk)


RENDERER = policies.load(BASE).renderer


def recorded(rollout: Rollout, *, failing: bool = False) -> Trajectory:
    """What a rollout of the shipped policy leaves: one search, then a last word."""
    call = ToolCall(id="call_0", name="grep", arguments={"pattern": f"total_{rollout.pk}"})
    error = ToolError(kind=ToolErrorKind.NOT_FOUND, message="no match") if failing else None
    result = ToolResult(call_id="call_0", output="no match" if failing else "totals.py:1", error=error)
    asked = {"role": "user", "content": f"mend total_{rollout.pk}"}
    start, searched = RENDERER.start([asked]), RENDERER.turn([call])
    bridge, ended = RENDERER.observe([result]), RENDERER.turn([], f"done {rollout.pk}")
    tokens = [*start, *searched, *bridge, *ended]
    mask = [0] * len(start) + [1] * len(searched) + [0] * len(bridge) + [1] * len(ended)
    first, last = len(start), len(start) + len(searched) + len(bridge)
    return trajectory(rollout.group, rollout.sample, passed=rollout.verdict == "passed").model_copy(
        update={
            "messages": (asked,),
            "tool_schema_hash": schema_hash_of(get_profile("toy")),
            "segments": (Segment(tokens=tokens, logprobs=[0.0] * len(tokens), loss_mask=mask, versions=[0] * len(tokens)),),
            "turns": (
                Turn(index=0, text=RENDERER.text(searched[:-1]), token_start=first, token_end=first + len(searched),
                     calls=(call,), results=(result,)),
                Turn(index=1, text=f"done {rollout.pk}", token_start=last, token_end=len(tokens)),
            ),
        }
    )  # fmt: skip


@pytest.fixture
def graded(base: Policy, make_suite: Callable[..., Suite]) -> Run:
    """Eight graded rollouts with recorded turns, four of them passed."""
    make_suite()
    run = runs.create_run(config=RunConfig(name="small", seed=3, stage=SMALL))
    runs.start_run(run=run)
    runs.mark_running(run=run, owner="trainer@test")
    runs.record_version(run=run, version=0)
    rollouts.pump(run_id=run.pk)
    for group in Group.objects.filter(run=run, state="dispatched").order_by("pk"):
        claimed = claim(group)
        finish(claimed.group, claimed.held, [True, False])
    for rollout in Rollout.objects.select_related("group__task_version__task"):
        artifacts().put_model(rollout.artifact_key, recorded(rollout, failing=rollout.sample == 1))
    return run


def test_files_are_prepared_by_a_worker(people: dict[str, User]) -> None:
    asked = services.ask(
        name="mine", wanted=Wanted(), files={"../x y.jsonl": io.BytesIO(rows(12))}, actor=people["operator"]
    )
    message = Outbox.objects.get(task="datasets.prepare")
    assert (asked.state, message.queue) == ("waiting", "io")
    prepare_task(**message.kwargs)
    found = selectors.get_dataset(asked.pk)
    assert (found.state, found.conversations, found.dropped, found.cause) == ("done", 12, 0, "")
    assert [one["name"] for one in found.provenance["sources"]] == ["00-x_y.jsonl"]
    assert len(conversations(services.folder_of(found))) == 12
    assert not services.uploads_of(found).exists()
    assert services.write(asked.pk) == "nothing to do"


def test_good_rollouts_become_data_with_their_own_tokens(graded: Run) -> None:
    found = made(count=8, rollouts=f"run={graded.pk}&reward_min=1&suite=train", suites=[])
    assert (found.state, found.cause, found.conversations) == ("done", "", 12)
    policy = policies.load(BASE)
    kept = conversations(services.folder_of(found))
    own = streams(policy, kept, max_tokens=4096, max_held_out=0)
    assert (own.kept, own.as_sampled, own.dropped) == (12, 4, {})
    passed = {str(recorded(r).segments[0].tokens) for r in Rollout.objects.filter(verdict="passed")}
    assert {str(list(tokens.ids)) for tokens in own.train} >= passed
    # With another tokenizer the same words are rendered anew; here they come to the same tokens.
    others = [one.model_copy(update={"tokenizer": "another"}) for one in kept]
    again = streams(policy, others, max_tokens=4096, max_held_out=0)
    assert (again.kept, again.as_sampled) == (12, 0)
    assert sorted(map(bytes, (t.ids for t in again.train))) == sorted(map(bytes, (t.ids for t in own.train)))
    assert sorted(t.learned for t in again.train) == sorted(t.learned for t in own.train)


def test_what_failed_is_read_and_not_learned(graded: Run) -> None:
    found = made(count=8, rollouts=f"run={graded.pk}&verdict=failed", suites=[])
    kept = [one for one in conversations(services.folder_of(found)) if one.source == "rollouts"]
    assert [message.trained for message in kept[0].messages] == [False, False, False, True]
    (window,) = kept[0].windows
    whole = recorded(Rollout.objects.get(pk=int(kept[0].place.split()[1])), failing=True)
    first, last = whole.turns
    assert sum(window.loss_mask) == last.token_end - last.token_start
    assert not any(window.loss_mask[first.token_start : first.token_end])


def test_quarantined_rollouts_stay_out(graded: Run) -> None:
    Quarantine.objects.create(rollout=choosing.chosen("verdict=passed").first())
    assert choosing.chosen("verdict=passed").count() == 3


@pytest.mark.parametrize(
    ("query", "why"),
    [("reward=1", "no filter 'reward'"), ("suite=none", "no suite 'none'"), ("run=9999", "no graded rollout is left"),
     ("run=x", "run: "), ("verdict=good", "verdict: ")],
)  # fmt: skip
def test_filters_that_choose_nothing_are_refused_by_name(graded: Run, query: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as refused:
        services.ask(name="mine", wanted=Wanted(rollouts=query))
    assert refused.value.field == "rollouts"


def test_data_are_kept_clear_of_what_is_measured(make_suite: Callable[..., Suite]) -> None:
    make_suite("held-out", 3)
    (_, answer), *_ = generate(1, "held-out").gold.items()
    leak = json.dumps({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]})
    found = made(data=rows(12) + leak.encode() + b"\n")
    assert found.provenance["dropped"] == {"contaminated": 1}
    assert [guard["suite"] for guard in found.provenance["guards"]] == ["held-out"]
    _, facts = selectors.ready("mine")
    assert guards.unguarded(facts.guards) == []
    Suite.objects.create(name="benchmark-2", purpose="benchmark")
    assert guards.unguarded(facts.guards) == [], "an empty one asks for nothing"
    assert guards.unguarded([]) == ["held-out"]


def sft(dataset: str) -> RunConfig:
    return RunConfig(name="learn", stage=toy_sft(dataset=dataset, steps=2))


def test_a_run_names_its_dataset(base: Policy, make_suite: Callable[..., Suite]) -> None:
    make_suite("held-out", 3)
    with pytest.raises(UserError, match=r"no dataset 'mine'.*none yet") as refused:
        runs.check_config(sft("mine"))
    assert refused.value.field == "stage.dataset"
    made(suites=[], data=rows(12) + rows(2))
    warnings = runs.check_config(sft("mine"))
    assert any("not decontaminated against held-out" in warning for warning in warnings)
    assert any("without 2 duplicate" in warning for warning in warnings)
    (row,) = (row for row in what_will_run(sft("mine")) if row.label == "Conversations")
    assert (row.value, row.how) == (12, "of dataset mine, 2 were left out")
    run = runs.create_run(config=sft("mine"))
    assert dataset_folder(run, run.configuration.stage) == services.folder_of(Dataset.objects.get())
    with pytest.raises(Conflict, match="names dataset 'mine'"):
        services.remove(dataset=Dataset.objects.get())


def test_names_and_sources_are_checked(places: Path) -> None:
    made()
    with pytest.raises(Conflict, match="already"):
        services.ask(name="mine", wanted=Wanted(), files={"a.jsonl": io.BytesIO(rows(1))})
    for name, wanted, files, field in (
        ("../x", Wanted(), {"a.jsonl": io.BytesIO()}, "name"),
        ("other", Wanted(), {}, "files"),
        ("other", Wanted(), {"a.exe": io.BytesIO()}, "files"),
        ("other", Wanted(suites=["nothing"]), {"a.jsonl": io.BytesIO()}, "suites"),
    ):
        with pytest.raises(UserError) as refused:
            services.ask(name=name, wanted=wanted, files=files)
        assert refused.value.field == field
    with pytest.raises(IntegrityError), transaction.atomic():
        Dataset.objects.filter(name="mine").update(provenance=None)


@pytest.mark.parametrize("given", ["../secret", "/etc", "link", "..", "nothing"])
def test_only_what_lies_below_incoming_is_read(places: Path, given: str) -> None:
    (places / "secret").mkdir()
    (places / "secret" / "a.jsonl").write_bytes(rows(12))
    (places / "incoming" / "link").symlink_to(places / "secret")
    with pytest.raises(UserError, match="in the folder incoming") as refused:
        services.ask(name="mine", wanted=Wanted(folder=given))
    assert refused.value.field == "folder"
    assert given in str(refused.value)


def test_folders_below_incoming_are_read(places: Path) -> None:
    (places / "incoming" / "good").mkdir()
    (places / "incoming" / "good" / "a.jsonl").write_bytes(rows(6))
    (places / "incoming" / "good" / "b.jsonl").write_bytes(rows(6, 6))
    assert selectors.waiting_files() == ["good"]
    assert made(count=0, folder="good").conversations == 12


def test_what_cannot_be_prepared_says_why() -> None:
    found = made(count=3)
    assert found.state == "failed" and "3 conversations can be trained on" in found.cause
    with pytest.raises(UserError, match="is failed: 3 conversations"):
        selectors.ready("mine")
    services.remove(dataset=found)
    assert not services.uploads_of(found).exists() and not services.folder_of(found).exists()
    with pytest.raises(NotFound):
        selectors.get_dataset(found.pk)


def test_the_page_makes_one_and_shows_what_it_is_made_of(
    people: dict[str, User], client: Client, make_suite: Callable[..., Suite]
) -> None:
    make_suite("held-out", 3)
    client.force_login(people["operator"])
    empty = client.post("/datasets/new/", {"name": "mine", "guards": ["held-out"]})
    assert (
        empty.status_code == 422 and b"a dataset needs a source" in empty.content and b'value="mine"' in empty.content
    )
    file = SimpleUploadedFile("rows.jsonl", rows(12) + b"{}\n")
    answer = client.post("/datasets/new/", {"name": "mine", "guards": ["held-out"], "files": [file]})
    found = Dataset.objects.get()
    assert answer["Location"] == f"/datasets/{found.pk}/"
    assert b"Being prepared" in client.get(f"/datasets/{found.pk}/").content
    services.write(found.pk)
    shown = client.get(f"/datasets/{found.pk}/").content.decode()
    assert "12 conversations" in shown and "line 13: no list under" in shown and "held-out" in shown
    assert "mine" in client.get("/datasets/").content.decode()
    form = client.get("/runs/new/?preset=sft-toy&dataset=mine").content.decode()
    assert '<option value="mine" selected>' in form and "a scripted expert" in form
    client.force_login(people["viewer"])
    assert client.get("/datasets/new/").status_code == 403
    assert client.post(f"/datasets/{found.pk}/remove/").status_code == 403
    client.force_login(people["operator"])
    client.post(f"/datasets/{found.pk}/remove/")
    assert not Dataset.objects.exists()


def test_the_api_prepares_shows_and_removes(client: Client, bearer: Callable[..., dict[str, str]], graded: Run) -> None:
    operate = bearer("operator", "operate")
    body = {"name": "good", "rollouts": f"run={graded.pk}", "suites": []}
    asked = client.post("/api/v1/datasets", json.dumps(body), content_type="application/json", headers=operate)
    assert asked.status_code == 201 and asked.json()["state"] == "waiting"
    services.write(asked.json()["id"])
    found = client.get(f"/api/v1/datasets/{asked.json()['id']}", headers=operate).json()
    assert found["state"] == "failed" and "8 conversations can be trained on" in found["cause"]
    file = SimpleUploadedFile("rows.jsonl", rows(12))
    asked = client.post("/api/v1/datasets/files", {"name": "file", "file": file}, headers=operate)
    assert asked.status_code == 201
    services.write(asked.json()["id"])
    assert [one["name"] for one in client.get("/api/v1/datasets", headers=operate).json()] == ["file", "good"]
    assert client.delete(f"/api/v1/datasets/{asked.json()['id']}", headers=operate).status_code == 204
    bad = client.post("/api/v1/datasets", json.dumps({"name": "x", "folder": "../run"}), content_type="application/json",
                      headers=operate)  # fmt: skip
    assert bad.status_code == 422 and bad.json()["error"]["field"] == "folder"
