"""Forks in the product: asked for on every way, continued by the real engine in real sandboxes, killed on the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import UserError
from composer_web.env import REPOSITORY, env
from composer_web.evals.models import Evaluation
from composer_web.evals.services import create_evaluation, mark_running
from composer_web.policies.models import Policy
from composer_web.policies.services import import_base
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Fork, Group, Rollout
from composer_web.rollouts.worker import execution, forks, loop
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite
from composer_web.tasks.services import build_procedural
from sandbox.backends.snapshots import SnapshotStore
from tests.web.conftest import PASSWORD
from tests.web.helpers import as_read, eventually
from tests.web.making import claim, trajectory
from tests.web.product import Product
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.toy.preset import toy_harness
from trainer.types import Trajectory, Turn

BASE = REPOSITORY / "policies" / "base"


def snapshot_of(digit: str) -> str:
    return digit * 64


@pytest.fixture
def parent(running: Run) -> Rollout:
    """A rollout of a running run with three turns, the first two with snapshots."""
    services.pump(run_id=running.pk)
    group = Group.objects.filter(run=running).earliest("prompt_index")
    claimed = claim(group)
    graded = []
    for sample in range(group.size):
        base = trajectory(group, sample, passed=sample == 0)
        first = Turn(index=0, text="look", token_start=1, token_end=2, snapshot=snapshot_of("a"))
        second = first.model_copy(update={"index": 1, "snapshot": snapshot_of("b")})
        turns = (first, second, first.model_copy(update={"index": 2, "snapshot": ""}))
        base = base.model_copy(update={"turns": turns})
        key = f"groups/{group.pk}/{claimed.held.token}/{sample}.json.zst"
        artifacts().put_model(key, base)
        graded.append(services.Graded(base, key))
    services.accept(
        group=claimed.group, held=claimed.held, graded=graded, train_key="", oldest_version=0, infra_errors=()
    )
    return Rollout.objects.get(group=group, sample=0)


@pytest.mark.django_db
class TestAsking:
    def test_a_fork_is_a_group_of_its_own_that_its_run_never_sees(self, parent: Rollout) -> None:
        groups = Group.objects.filter(run=parent.group.run).count()
        fork = forks.request_fork(rollout=parent, turn=2, count=3)
        assert (fork.group.size, fork.group.state, fork.group.run_id) == (3, "dispatched", None)
        assert fork.group.task_version == parent.group.task_version
        assert fork.run == parent.group.run
        assert Group.objects.filter(run=parent.group.run).count() == groups
        assert [f.pk for f in selectors.forks_of(parent)] == [fork.pk]
        assert forks.config(fork, size=3).sampling == parent.group.run.configuration.stage.sampling
        assert forks.weights(fork).name == f"run-{parent.group.run_id}"

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"turn": 3, "count": 1}, "choose one from 1 to 2; the last turn ended the episode"),
            ({"turn": 0, "count": 1}, "choose one from 1 to 2"),
            ({"turn": 1, "count": 0}, "1 to 64 samples, not 0"),
            ({"turn": 1, "count": 65}, "1 to 64 samples, not 65"),
            ({"turn": 1, "count": 1, "reference": "nobody"}, "there is no policy 'nobody'"),
        ],
    )
    def test_what_cannot_be_is_refused_in_words(self, parent: Rollout, values: dict, words: str) -> None:
        with pytest.raises(UserError, match=words):
            forks.request_fork(rollout=parent, **values)
        assert not Fork.objects.exists()

    def test_a_policy_with_another_tokenizer_is_refused(self, parent: Rollout, tmp_path: Path, policy: Policy) -> None:
        folder = tmp_path / "other"
        folder.mkdir()
        for file in (tmp_path / "policy").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        assert import_base(path=folder, name="same", toy=True)
        assert forks.request_fork(rollout=parent, turn=1, count=1, reference="same").reference == "same@0"
        (folder / "tokenizer.json").write_text("{}")
        with pytest.raises(UserError, match="another tokenizer"):
            forks.request_fork(rollout=parent, turn=1, count=1, reference="same")

    def test_once_its_run_has_ended_the_newest_weights_continue(self, parent: Rollout) -> None:
        fork = forks.request_fork(rollout=parent, turn=1, count=1)
        fork.run.state = "finished"
        with pytest.raises(UserError, match="has no weights on disk"):
            forks.weights(fork)
        start = fork.policy.checkpoints.get()
        fork.run.policy_out.checkpoints.create(version=7, kind="final", path=start.path)
        assert forks.weights(fork).name == f"fork-{fork.pk}"

    def test_cancelled_it_ends_its_rollouts_without_reward(self, parent: Rollout) -> None:
        fork = forks.request_fork(rollout=parent, turn=1, count=2)
        forks.cancel(fork=fork)
        rows = Rollout.objects.filter(group__fork=fork)
        assert {(r.verdict, r.reward) for r in rows} == {("infra_error", None)}
        with pytest.raises(UserError, match="has ended"):
            forks.cancel(fork=fork)

    def test_a_fork_of_a_fork_keeps_the_first_conditions(self, parent: Rollout) -> None:
        fork = forks.request_fork(rollout=parent, turn=1, count=1)
        claimed = claim(fork.group)
        base = selectors.trajectory(parent)
        key = f"groups/{fork.group.pk}/{claimed.held.token}/0.json.zst"
        artifacts().put_model(key, base)
        services.accept(group=claimed.group, held=claimed.held, graded=[services.Graded(base, key)], train_key="",
                        oldest_version=0, infra_errors=())  # fmt: skip
        again = forks.request_fork(rollout=Rollout.objects.get(group__fork=fork), turn=2, count=1)
        assert (again.run, again.conditions, again.policy) == (fork.run, fork.conditions, fork.policy)

    def test_the_page_says_why_a_turn_cannot_be_continued(self, parent: Rollout, people: dict[str, User]) -> None:
        page = Client()
        page.force_login(people["operator"])
        html = page.get(f"/rollouts/{parent.pk}/").content.decode()
        assert (html.count("&amp;fork="), html.count('popovertarget="why-last"')) == (2, 2)  # of its three turns
        whole = selectors.trajectory(parent)
        artifacts().put_model(parent.artifact_key, whole.model_copy(update={"segments": ()}))
        html = page.get(f"/rollouts/{parent.pk}/").content.decode()
        assert ("&amp;fork=" in html, html.count('popovertarget="why-not-fork"')) == (False, 2)
        assert "behind an endpoint, which gives no tokens" in html
        assert html.count("&amp;draft=") == 2  # files need no tokens
        with pytest.raises(UserError, match="gives no tokens"):
            forks.request_fork(rollout=parent, turn=1, count=1)

    @pytest.mark.parametrize("change", [{"turn": 2}, {"reference": "x"}, {"seed": 5}])
    def test_what_was_asked_never_changes(self, parent: Rollout, change: dict) -> None:
        fork = forks.request_fork(rollout=parent, turn=1, count=1)
        with pytest.raises(IntegrityError), transaction.atomic():
            Fork.objects.filter(pk=fork.pk).update(**change)

    def test_over_the_api(self, parent: Rollout, client: Client, bearer: Callable[..., dict[str, str]]) -> None:
        url, body = f"/api/v1/forks?rollout={parent.pk}", {"turn": 1, "count": 2}
        post = lambda headers, body: client.post(url, body, content_type="application/json", headers=headers)  # noqa: E731
        assert post(bearer("viewer", "read"), body).status_code == 403
        operator = bearer("operator", "read", "operate")
        made = post(operator, body)
        assert made.status_code == 201
        fork = made.json()
        assert (fork["parent_id"], fork["turn"], fork["size"], fork["state"], fork["replayed"]) == (
            parent.pk, 1, 2, "dispatched", None)  # fmt: skip
        assert client.get(url, headers=operator).json() == [fork]
        rollouts = client.get(f"/api/v1/groups/{fork['group_id']}", headers=operator).json()["rollouts"]
        assert [r["fork_id"] for r in rollouts] == [fork["id"]] * 2
        wrong = post(operator, {"turn": 9, "count": 2})
        assert wrong.status_code == 422 and wrong.json()["error"]["field"] == "turn"
        cancel = f"/api/v1/forks/{fork['id']}/cancel"
        assert client.post(cancel, headers=operator).json()["state"] == "dropped"
        assert client.post(cancel, headers=operator).status_code == 409
        assert client.post("/api/v1/forks/99999/cancel", headers=operator).status_code == 404

    def test_on_the_pages(self, parent: Rollout, client: Client, people: dict[str, User]) -> None:
        client.login(username="viewer", password=PASSWORD)
        page, form = f"/rollouts/{parent.pk}/", f"/rollouts/{parent.pk}/fork/"
        assert "Fork here" not in client.get(page).content.decode()
        assert client.post(form, {"turn": "1", "count": "2"}).status_code == 403
        client.login(username="operator", password=PASSWORD)
        text = as_read(client.get(page + "?fork=2").content)
        assert text.count("&amp;fork=") == 2 and 'required value="2"' in text
        done = client.post(form, {"turn": "2", "count": "2", "policy": ""}, follow=True)
        fork = Fork.objects.get()
        assert done.redirect_chain == [(f"/groups/{fork.group.pk}/", 302)]
        text = as_read(done.content)
        assert f'href="/rollouts/{parent.pk}/">rollout {parent.pk}</a> after turn 2' in text and "Cancel" in text
        assert f'href="/groups/{fork.group.pk}/">2</a>' in client.get(page).content.decode()
        assert f"fork of #{parent.pk}" in client.get("/rollouts/?verdict=open").content.decode()
        child = fork.group.rollouts.first()
        assert child is not None and client.get(f"/rollouts/{child.pk}/").status_code == 200
        for wrong in ({"turn": "x", "count": "2"}, {"turn": "3", "count": "2"}, {"turn": "1"}):
            answer = client.post(form, wrong, follow=True)
            assert answer.redirect_chain == [(page, 302)] and "notice" in answer.content.decode()
        client.post(f"/forks/{fork.pk}/cancel/")
        fork.group.refresh_from_db()
        assert fork.group.state == "dropped"


@pytest.mark.django_db
class TestCollecting:
    """Which snapshots the periodic task keeps. The store's own rules are tested beside it."""

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotStore:
        monkeypatch.setattr(forks, "snapshots_folder", lambda: tmp_path / "snapshots")
        store = SnapshotStore(tmp_path / "snapshots")
        for digit in "abc":
            file = tmp_path / "snapshots" / "archives" / snapshot_of(digit)
            file.touch()
            os.utime(file, (1, 1))
        return store

    def test_those_of_a_run_that_goes_on_stay(self, parent: Rollout, store: SnapshotStore) -> None:
        Rollout.objects.update(finished_at=timezone.now() - timedelta(days=99))
        assert forks.collect().snapshots == 1
        assert store.digests() == {snapshot_of("a"), snapshot_of("b")}

    def test_those_of_a_run_that_ended_go_after_some_days(
        self, parent: Rollout, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from composer_web.runs import services as runs

        runs.mark_failed(run=parent.group.run, cause="over")
        assert forks.collect().snapshots == 1, "ended just now"
        later = timezone.now() - timedelta(days=env().snapshot_days + 1)
        Rollout.objects.update(finished_at=later)
        with monkeypatch.context() as patch:
            patch.setattr(env(), "snapshot_days", 0)
            assert forks.collect().snapshots == 0, "0 keeps them for ever"
        assert forks.collect().snapshots == 2

    def test_those_younger_than_a_group_in_progress_stay(
        self, parent: Rollout, store: SnapshotStore, tmp_path: Path
    ) -> None:
        fresh = tmp_path / "snapshots" / "archives" / snapshot_of("c")
        group = Group.objects.filter(state="dispatched").first()
        assert group is not None
        claim(group)
        began = timezone.now() - timedelta(hours=5)
        Group.objects.filter(pk=group.pk).update(dispatched_at=began)
        os.utime(fresh, (began.timestamp() + 1,) * 2)
        assert forks.collect().snapshots == 0
        os.utime(fresh, (began.timestamp() - 3600,) * 2)
        assert forks.collect().snapshots == 1


def _evaluated(every: int) -> Evaluation:
    """One task, two rollouts of the shipped policy, dispatched."""
    policy = import_base(path=BASE, name="base", toy=True)
    build_procedural(n_train=1, n_held_out=1)
    suite = Suite.objects.get(name="held-out")
    return create_evaluation(
        policy=policy, version=0, suite=suite, tasks=1, samples=2, harness=toy_harness(snapshot_every=every)
    )


def _longest(evaluation: Evaluation) -> Rollout:
    row = Rollout.objects.filter(group__evaluation=evaluation).exclude(artifact_key="").order_by("-turns").first()
    assert row is not None and row.turns > 2, "the shipped policy works in several turns"
    return row


def _prefix_is_exact(child: Trajectory, parent: Trajectory, turn: int) -> None:
    start = parent.turns[turn].token_start
    assert child.segments[0].tokens[:start] == parent.segments[0].tokens[:start]
    assert not any(child.segments[0].loss_mask[:start])
    assert child.turns[:turn] == parent.turns[:turn]


@pytest.mark.integration
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("every", [1, 0])
def test_the_real_policy_goes_on_from_a_turn(
    engine: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(env(), "inference_url", engine.url)
    monkeypatch.setattr(loop, "current_loop", None)
    execution.deployed_at.clear()
    evaluation = _evaluated(every)
    services.dispatch_evaluation(
        evaluation=evaluation, version_ids=[evaluation.suite.memberships.first().task_version_id]
    )
    mark_running(evaluation=evaluation)
    assert execution.execute(Group.objects.get(evaluation=evaluation).pk) == "accepted"
    parent = _longest(evaluation)
    assert bool(parent.snapshots) == bool(every)
    fork = forks.request_fork(rollout=parent, turn=2, count=3)
    assert execution.execute(fork.group.pk) == "accepted"
    fork = selectors.get_fork(fork.pk)
    assert fork.replayed == (0 if every else 2)
    assert fork.group.train_key == ""
    children = list(selectors.of_group(fork.group))
    assert [c.verdict in ("passed", "failed") for c in children] == [True] * 3
    before = selectors.trajectory(parent)
    for child in children:
        after = selectors.trajectory(child)
        _prefix_is_exact(after, before, 2)
        assert after.forked is not None and after.forked.parent == str(parent.pk)
        assert len(after.turns) > 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_during_a_fork_leaves_nothing_and_the_fork_is_done_again(
    tmp_path: Path, free_port: int
) -> None:
    product = Product(tmp_path, free_port, OPENCOMPOSER_GROUP_LEASE_SECONDS="4")
    for name in ("inference", "control", "rollout", "beat"):
        product.start(name)
    try:
        evaluation = _evaluated(1)
        eventually(
            lambda: Evaluation.objects.filter(pk=evaluation.pk, state="finished").exists(), seconds=300, what="rollouts"
        )
        parent = _longest(evaluation)
        fork = forks.request_fork(rollout=parent, turn=1, count=32)
        worker = product.running["rollout"].pid
        eventually(lambda: len(_descendants(worker)) > 4, seconds=120, what="sandboxes of the fork")
        assert Group.objects.filter(fork=fork, state="running").exists()
        left = _descendants(worker)
        product.kill("rollout")
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), seconds=30, what="an end of all")
        eventually(lambda: Group.objects.filter(fork=fork, state="accepted").exists(), seconds=300, what="the fork")
        group = Group.objects.get(fork=fork)
        assert (group.attempts, group.infra_errors) == (2, 1)
        children = list(selectors.of_group(group))
        assert len(children) == 32 and all(c.verdict in ("passed", "failed") for c in children)
        _prefix_is_exact(selectors.trajectory(children[-1]), selectors.trajectory(parent), 1)
        store = SnapshotStore(loop.snapshots_folder())
        store.sweep()
        assert not list((loop.snapshots_folder() / "drafts").iterdir())
        again = forks.request_fork(rollout=parent, turn=1, count=2)
        eventually(
            lambda: Group.objects.filter(fork=again, state="accepted").exists(), seconds=300, what="another fork"
        )
        verdicts = [child.verdict for child in selectors.of_group(Group.objects.get(fork=again))]
        assert len(verdicts) == 2 and set(verdicts) <= {"passed", "failed"}
    finally:
        product.stop()


def _descendants(pid: int) -> set[int]:
    """Processes below `pid`."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found
