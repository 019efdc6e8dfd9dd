"""From a moment of a rollout to a task: drafts with files from a real sandbox, publishing, and who may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import Conflict, UserError
from composer_web.core.models import Outbox
from composer_web.env import env
from composer_web.review import task_drafts
from composer_web.review.models import Draft
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.models import Run
from composer_web.tasks.controls import run_pending
from composer_web.tasks.models import Task
from sandbox.backends.base import FileChange, Patch
from sandbox.backends.choice import default_backend
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session, schema_hash_of
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec
from tests.web.making import claim, trajectory
from trainer.toy.preset import toy_harness
from trainer.types import Turn

pytestmark = pytest.mark.django_db
Bearer = Callable[..., dict[str, str]]
PROFILE = get_profile(toy_harness().profile)
PLAYED: dict[str, tuple[ToolResult, ...]] = {}


async def play(spec: TaskSpec, calls: list[ToolCall]) -> tuple[ToolResult, ...]:
    """What a real sandbox answers to these calls."""
    backend = default_backend()
    try:
        place = EnvironmentStore(env().data / "environments").spec(spec.environment, PROFILE.machine)
        async with await backend.start(place) as sandbox:
            return tuple(await Session(sandbox, PROFILE).run(calls))
    finally:
        await backend.close()


@pytest.fixture
def rollout(running: Run) -> Rollout:
    """A recorded rollout whose first turn really edited the file that holds the bug."""
    services.pump(run_id=running.pk)
    group = Group.objects.filter(run=running).earliest("prompt_index")
    spec = group.task_version.bundle
    path, text = next((path, text) for path, text in spec.environment.files.items() if path in spec.gold)  # type: ignore[union-attr]
    line = next(line for line in text.splitlines() if line.strip())
    edit = {"path": path, "old_string": line, "new_string": f"{line}\n# seen"}
    calls = [ToolCall(id="c0", name="edit_file", arguments=edit)]
    if spec.bundle_hash not in PLAYED:  # the same task each time: one sandbox answers for all tests
        PLAYED[spec.bundle_hash] = asyncio.run(play(spec, calls))
    results = PLAYED[spec.bundle_hash]
    assert results[0].error is None, results[0]
    claimed = claim(group)
    graded = []
    for sample in range(group.size):
        first = Turn(index=0, text="edit", token_start=1, token_end=2, calls=tuple(calls), results=results)
        last = Turn(index=1, text="done", token_start=2, token_end=3)
        recorded = trajectory(group, sample, passed=sample == 0)
        recorded = recorded.model_copy(update={"turns": (first, last), "tool_schema_hash": schema_hash_of(PROFILE)})
        key = f"groups/{group.pk}/{claimed.held.token}/{sample}.json.zst"
        artifacts().put_model(key, recorded)
        graded.append(services.Graded(recorded, key))
    services.accept(
        group=claimed.group, held=claimed.held, graded=graded, train_key="", oldest_version=0, infra_errors=()
    )
    return Rollout.objects.get(group=group, sample=1)


def drafted(rollout: Rollout, user: User, **changes: Any) -> Draft:
    values = {"turn": 0, "slug": "from-a-session", "instruction": "Finish it", **changes}
    return task_drafts.create_draft(rollout=rollout, actor=user, **values)


def test_a_moment_becomes_a_task_with_controls(rollout: Rollout, people: dict[str, User]) -> None:
    draft = drafted(rollout, people["reviewer"], turn=1)
    assert draft.state == "collecting"
    (asked,) = Outbox.objects.filter(task="review.collect_draft")
    assert (asked.queue, asked.kwargs) == ("build", {"draft_id": draft.pk})
    with pytest.raises(Conflict, match="it is collecting"):
        task_drafts.publish(draft=draft, actor=people["reviewer"])
    draft = task_drafts.collect(draft.pk)
    assert (draft.state, draft.not_carried, draft.provenance["replayed"]) == ("open", [], 1)
    ((path, text),) = draft.files.items()
    assert text.count("# seen") == 1
    assert task_drafts.collect(draft.pk).files == draft.files  # again changes nothing
    version = task_drafts.publish(draft=draft, actor=people["operator"])
    source = rollout.group.task_version.bundle
    assert version.bundle.environment.files == {**source.environment.files, path: text}  # type: ignore[union-attr]
    assert (version.bundle.source, version.bundle.instruction, version.author) == (
        "session",
        "Finish it",
        people["reviewer"],
    )
    assert (version.bundle.verifier, version.bundle.gold) == (source.verifier, source.gold)
    assert Outbox.objects.filter(task="tasks.run_controls", kwargs__version_ids=[version.pk]).exists()
    assert run_pending([version.pk]) == []
    version.refresh_from_db()
    assert version.controls_ok, version.controls
    draft.refresh_from_db()
    assert (draft.state, draft.version) == ("published", version)
    for end in (task_drafts.publish, task_drafts.discard):
        with pytest.raises(Conflict, match="is published"):
            end(draft=draft, actor=people["operator"])
    with pytest.raises(IntegrityError, match="draft_published_has_version"), transaction.atomic():
        Draft.objects.update(state="open")


def test_a_session_that_cannot_be_repeated_says_why(rollout: Rollout, people: dict[str, User]) -> None:
    draft = drafted(rollout, people["reviewer"], turn=1)
    recorded = task_drafts.selectors.trajectory(rollout)
    other = recorded.turns[0].results[0].model_copy(update={"output": "something else"})
    turns = (recorded.turns[0].model_copy(update={"results": (other,)}), recorded.turns[1])
    artifacts().put_model(rollout.artifact_key, recorded.model_copy(update={"turns": turns}))
    draft = task_drafts.collect(draft.pk)
    assert draft.state == "failed"
    assert draft.cause
    with pytest.raises(Conflict, match="it is failed"):
        task_drafts.publish(draft=draft, actor=people["reviewer"])
    task_drafts.discard(draft=draft, actor=people["reviewer"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"turn": 2}, "choose one from 1 to 1"),
        ({"slug": "No Name"}, "lower-case letters"),
        ({"instruction": " "}, "1 to 20,000 characters"),
        ({"category": "magic"}, "debug, feature"),
    ],
)
def test_what_cannot_be_is_refused(
    rollout: Rollout, people: dict[str, User], values: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        drafted(rollout, people["reviewer"], **values)
    taken = Task.objects.earliest("pk").slug
    with pytest.raises(UserError, match="there is a task or draft"):
        drafted(rollout, people["reviewer"], slug=taken)
    assert not Draft.objects.exists()


def test_what_a_bundle_cannot_hold_is_told(rollout: Rollout) -> None:
    spec = rollout.group.task_version.bundle
    patch = Patch(
        changes=(FileChange("gone.py", None), FileChange("new.py", b"x = 1\n"), FileChange("raw.bin", b"\xff\xfe\x00")),
        skipped=(("link", "a symbolic link"),),
    )
    files, lost = task_drafts.draft_files(patch, spec)
    assert files == {"gone.py": None, "new.py": "x = 1\n"}
    assert lost == ["link: a symbolic link", "raw.bin: not text"]
    built = spec.model_copy(update={"environment": BuiltEnvironment(digest="0" * 64)})
    assert task_drafts.draft_files(patch, built)[1][1].startswith("gone.py: removed from a built environment")


def test_other_hidden_tests_replace_those_of_the_source(rollout: Rollout, people: dict[str, User]) -> None:
    draft = drafted(rollout, people["reviewer"])
    assert draft.state == "open"
    calls = {"kind": "calls", "module": "a.py", "function": "f", "cases": [["(1,)", "2"]]}
    change = {"draft": draft, "instruction": "Anew", "category": "feature", "actor": people["reviewer"]}
    with pytest.raises(UserError, match=r"verifier"):
        task_drafts.change(**change, verifier={"kind": "magic"})
    task_drafts.change(**change, verifier=calls, gold={"a.py": "def f(x):\n    return x + 1\n"})
    version = task_drafts.publish(draft=draft, actor=people["reviewer"])
    assert (version.bundle.verifier.module, version.bundle.category) == ("a.py", "feature")  # type: ignore[union-attr]


def test_pages(rollout: Rollout, people: dict[str, User]) -> None:
    viewer, reviewer = Client(), Client()
    viewer.force_login(people["viewer"])
    reviewer.force_login(people["reviewer"])
    path = f"/rollouts/{rollout.pk}/drafts/"
    assert 'id="draft"' in reviewer.get(f"/rollouts/{rollout.pk}/?draft=1").content.decode()
    assert 'id="draft"' not in viewer.get(f"/rollouts/{rollout.pk}/").content.decode()
    values = {"turn": "0", "slug": "mine", "instruction": "<script>alert(1)</script>", "category": "debug"}
    assert Client().post(path, values)["Location"].startswith("/login/")
    assert viewer.post(path, values).status_code == 403
    assert reviewer.get(path).status_code == 405
    assert "a whole number" in reviewer.post(path, {**values, "turn": "x"}, follow=True).content.decode()
    html = reviewer.post(path, values, follow=True).content.decode()
    assert "Draft mine is made." in html
    assert "<script>alert" not in html
    draft = Draft.objects.get()
    assert "mine" in viewer.get("/drafts/").content.decode()
    html = viewer.get(f"/drafts/{draft.pk}/").content.decode()
    assert "Hidden tests" not in html
    group = rollout.group
    for address in (f"/tasks/{group.task_version.task.slug}/", f"/runs/{group.run_id}/", f"/rollouts/{rollout.pk}/"):
        assert f'<a href="{address}"' in html, address
    assert html.count("<dt>Rollout</dt>") == html.count("<dt>Task</dt>") == 1
    for action in ("save", "publish", "discard"):
        assert Client().post(f"/drafts/{draft.pk}/{action}/").status_code == 302
        assert viewer.post(f"/drafts/{draft.pk}/{action}/").status_code == 403
    assert reviewer.post(f"/drafts/{draft.pk}/erase/").status_code == 404
    saved = {"instruction": "Words", "category": "debug", "verifier": "[1]"}
    assert "is a JSON object" in reviewer.post(f"/drafts/{draft.pk}/save/", saved, follow=True).content.decode()
    html = reviewer.post(f"/drafts/{draft.pk}/save/", {**saved, "verifier": ""}, follow=True).content.decode()
    assert "Saved." in html
    html = reviewer.post(f"/drafts/{draft.pk}/publish/", follow=True).content.decode()
    assert "validation is queued" in html
    assert "/tasks/mine/" in html
    assert viewer.get("/drafts/999/").status_code == 404


def test_the_api_and_the_command_line(rollout: Rollout, people: dict[str, User], bearer: Bearer) -> None:
    client, review = Client(), bearer("reviewer", "review")
    body = {"rollout": rollout.pk, "turn": 0, "slug": "by-api", "instruction": "Finish it"}

    def send(method: str, path: str, body: Any, headers: dict[str, str]) -> Any:
        return client.generic(method, f"/api/v1/drafts{path}", json.dumps(body), "application/json", headers=headers)

    assert send("POST", "", body, bearer("viewer")).status_code == 403
    assert send("POST", "", {**body, "rollout": 0}, review).status_code == 404
    made = send("POST", "", body, review).json()
    assert (made["state"], made["provenance"]["rollout"]) == ("open", rollout.pk)
    changed = send("PUT", f"/{made['id']}", {"instruction": "Other words"}, review).json()
    assert changed["instruction"] == "Other words"
    assert send("POST", f"/{made['id']}/publish", {}, review).json()["task"] == "by-api"
    assert send("POST", f"/{made['id']}/discard", {}, review).status_code == 409
    assert client.get("/api/v1/drafts", headers=review).json()["items"][0]["slug"] == "by-api"
