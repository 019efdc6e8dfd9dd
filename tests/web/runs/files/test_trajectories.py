"""Trajectories of an ended run are deleted, but for those that people or other things need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import AuditEntry, User
from composer_web.core.artifacts import ArtifactError, ArtifactStore, artifacts
from composer_web.core.errors import Conflict
from composer_web.datasets.models import Dataset, DatasetRollout
from composer_web.evals.models import Evaluation
from composer_web.review.annotating import annotate
from composer_web.review.models import Draft, Label, Queue, QueueItem
from composer_web.rollouts import selectors
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.models import Fork, Group, Rollout, RolloutText
from composer_web.rollouts.trajectory import lens, trajectory_store
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.files import services, trajectories
from composer_web.runs.files.tasks import delete_files
from composer_web.runs.models import Run, TrainBatch
from composer_web.runs.services import resume_run
from composer_web.tasks.models import Suite
from trainer.types import Trajectory

pytestmark = pytest.mark.django_db
Work = Callable[[], list[FileDeletion]]


class Killed(BaseException):
    """The worker dies here."""


def ask(run: Run, *, annotated: bool = False, actor: User | None = None) -> FileDeletion:
    (made,) = services.delete(run=run, kinds=["trajectories"], annotated=annotated, actor=actor)
    return made


def rollouts(run: Run) -> list[Rollout]:
    return list(Rollout.objects.filter(group__run=run).order_by("pk"))


def stored(run: Run) -> dict[str, int]:
    groups = Group.objects.filter(run=run).values_list("pk", flat=True)
    return {key: size for pk in groups for key, size in artifacts().sizes(f"groups/{pk}").items()}


def test_blobs_go_and_the_record_stays(ended: Run, people: dict[str, User], work: Work) -> None:
    before = [(r.pk, r.verdict, r.reward, r.artifact_key) for r in rollouts(ended)]
    assert RolloutText.objects.count() == 8
    trajectory_store.copy(before[0][3], artifacts().get_model(before[0][3], Trajectory))
    sizes = stored(ended)
    ahead = services.plans(ended)[2].amount
    assert (ahead.items, ahead.deleted, ahead.freed, ahead.estimated) == (8, 8, sum(sizes.values()), False)
    deletion = ask(ended, actor=people["operator"])
    (done,) = work()
    assert (done.state, done.items, done.bytes, done.by) == ("done", 8, ahead.freed, "operator")
    assert stored(ended) == {}
    assert [(r.pk, r.verdict, r.reward, r.artifact_key) for r in rollouts(ended)] == before
    assert {r.deletion_id for r in rollouts(ended)} == {deletion.pk} and not RolloutText.objects.exists()
    delete_files(deletion_id=deletion.pk)
    assert FileDeletion.objects.get() == done
    entry = AuditEntry.objects.get(action="run.delete_files")
    assert (entry.actor_name, entry.target, entry.detail["kinds"]) == ("operator", f"run:{ended.pk}", ["trajectories"])


def test_a_deleted_one_says_when_and_by_whom(ended: Run, people: dict[str, User], work: Work) -> None:
    ask(ended, actor=people["operator"])
    rollout = rollouts(ended)[0]
    assert trajectory_store.of(rollout).total == 0  # nothing is deleted yet
    work()
    rollout.refresh_from_db()
    words = f"the trajectory of rollout {rollout.pk} was deleted on {timezone.localdate():%-d %B %Y} by operator"
    for read in (trajectory_store.of, selectors.trajectory):
        with pytest.raises(selectors.TrajectoryDeleted, match=words):
            read(rollout)
    assert not selectors.with_trajectories(ended).exists()
    client = Client()
    client.force_login(people["viewer"])
    page = client.get(f"/rollouts/{rollout.pk}/")
    assert page.status_code == 200 and words[1:] in page.content.decode() and "Download" not in page.content.decode()
    assert words[1:] in client.get(f"/rollouts/{rollout.pk}/preview/").content.decode()
    for part in ("tokens/?segment=0", "turns/", "download/"):
        assert client.get(f"/rollouts/{rollout.pk}/{part}").status_code == 404
    assert client.get(f"/api/v1/rollouts/{rollout.pk}").json()["trajectory_deleted_at"]
    assert client.get("/api/v1/rollouts").json()["items"][0]["trajectory_deleted_at"]
    group = client.get(f"/groups/{rollout.group_id}/")
    assert group.status_code == 200 and client.get(f"/api/v1/groups/{rollout.group_id}/comparison").status_code == 200
    answer = client.get(f"/api/v1/rollouts/{rollout.pk}/tokens?segment=0")
    assert answer.status_code == 404 and words in answer.json()["error"]["message"]


def test_batches_are_bounded_and_a_kill_between_two_is_made_good(
    ended: Run, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trajectories, "BATCH", 1)
    first, second = list(Group.objects.filter(run=ended).order_by("pk"))[:2]
    freed, remove = sum(stored(ended).values()), ArtifactStore.remove
    deletion = ask(ended)

    def dies(self: ArtifactStore, keys: list[str]) -> None:
        if keys[0].startswith(f"groups/{second.pk}/"):
            remove(self, keys[:1])
            raise Killed
        remove(self, keys)

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactStore, "remove", dies)
        with pytest.raises(Killed):
            delete_files(deletion_id=deletion.pk)
    shown = set(Rollout.objects.filter(group__run=ended, deletion=None).values_list("group_id", flat=True))
    assert not {first.pk, second.pk} & shown and len(shown) == 2
    assert {int(key.split("/")[1]) for key in stored(ended)} == {second.pk, *shown}
    deletion.refresh_from_db()
    assert (deletion.state, deletion.done_to, deletion.marked) == ("running", first.pk, second.pk)
    (done,) = work()
    assert (done.state, done.items, done.bytes, stored(ended)) == ("done", 8, freed, {})


def test_a_store_that_does_not_answer_is_tried_again(ended: Run, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(ended)

    def away(self: ArtifactStore, keys: list[str]) -> None:
        raise ArtifactError("the bucket is away")

    with monkeypatch.context() as patch:
        patch.setattr(ArtifactStore, "remove", away)
        (waits,) = work()
    assert (waits.state, waits.cause) == ("running", "the bucket is away; it is tried again in a minute")
    (done,) = work()
    assert (done.state, done.items, done.cause, stored(ended)) == ("done", 8, "", {})


def test_annotated_and_labelled_ones_stay_until_an_option_says_otherwise(
    ended: Run, people: dict[str, User], work: Work
) -> None:
    liked, labelled, *others = rollouts(ended)
    annotate(rollout=liked, kind="verdict", value="good", actor=people["reviewer"])
    queue = Queue.objects.create(name="q", title="Q", questions={}, closed_at=timezone.now())
    item = QueueItem.objects.create(queue=queue, rollout=labelled, labelled_by=1)
    Label.objects.create(item=item, reviewer=people["reviewer"], answers={})
    artifacts().put(lens.key_of(liked.group_id), b"what the trainer knew")
    assert services.plans(ended)[2].amount.kept == {"annotated or labelled": 2}
    ask(ended)
    (done,) = work()
    assert done.items == len(others)
    assert set(stored(ended)) == {liked.artifact_key, labelled.artifact_key, lens.key_of(liked.group_id)}
    assert trajectory_store.of(liked).total == 0
    assert services.plans(ended, annotated=True)[2].amount.deleted == 2
    ask(ended, annotated=True)
    (done,) = work()
    assert (done.items, stored(ended)) == (2, {})


def test_what_something_else_needs_stays_whatever_people_think(ended: Run, people: dict[str, User], work: Work) -> None:
    forked, trained, chosen, drafted, awaited, *others = rollouts(ended)
    Fork.objects.create(parent=forked, turn=1, policy=ended.policy_in)
    annotate(rollout=forked, kind="tag", value="odd", actor=people["reviewer"])
    dataset = Dataset.objects.create(name="good", wanted={"rollouts": "verdict=passed"})
    DatasetRollout.objects.create(dataset=dataset, rollout=trained)
    # Made before datasets named their rollouts: its filters say which.
    Dataset.objects.create(name="old", wanted={"rollouts": f"run={ended.pk}&verdict={chosen.verdict}"})
    chosen_too = [one for one in others if one.verdict == chosen.verdict]
    Draft.objects.create(slug="new-task", instruction="do", rollout=drafted, turn=0, state="open")
    queue = Queue.objects.create(name="open", title="Open", questions={})
    QueueItem.objects.create(queue=queue, rollout=awaited)
    kept = services.plans(ended, annotated=True)[2].amount.kept
    assert kept["continued by a fork"] == 1 and kept["in a dataset"] >= 2
    ask(ended, annotated=True)
    work()
    there = {row.pk for row in rollouts(ended) if row.deletion_id is None}
    assert {row.pk for row in (forked, trained, chosen, drafted, awaited, *chosen_too)} <= there
    assert len(there) < 8
    for row in rollouts(ended):
        assert artifacts().exists(row.artifact_key) == (row.pk in there)


def test_open_groups_evaluations_and_exports_are_refused(ended: Run, people: dict[str, User]) -> None:
    evaluation = Evaluation.objects.create(
        run=ended,
        policy=ended.policy_in,
        suite=Suite.objects.get(),
        phase="during",
        tasks=1,
        samples=1,
        temperature=1.0,
    )
    with pytest.raises(Conflict, match=f"evaluation {evaluation.pk} of run {ended.pk} is not over") as no:
        ask(ended)
    assert no.value.field == "trajectories"
    Evaluation.objects.update(state="cancelled")
    other = Export.objects.create(owner=people["viewer"], format="csv", query="run=0")
    export = Export.objects.create(owner=people["viewer"], format="csv", query=f"run={ended.pk}")
    with pytest.raises(Conflict, match=f"export {export.pk} .viewer. reads rollouts of run {ended.pk}; wait until"):
        ask(ended)
    export.delete()
    assert other.state == "waiting"
    task = Group.objects.filter(run=ended).first().task_version
    Group.objects.create(evaluation=evaluation, task_version=task, prompt_index=0, size=1, state="dispatched")
    with pytest.raises(Conflict, match="are still open; they end within a minute"):
        ask(ended)


def test_a_failed_run_that_needs_a_deleted_batch_cannot_be_resumed(failed: Run, work: Work) -> None:
    ids = list(Group.objects.filter(run=failed).order_by("pk").values_list("pk", flat=True))
    ask(failed)
    work()
    assert resume_run(run=failed).state == "queued"  # no batch is recorded
    Run.objects.filter(pk=failed.pk).update(state="failed")
    TrainBatch.objects.create(run=failed, step=1, group_ids=ids[:2])
    with pytest.raises(
        Conflict, match=r"its trajectories were deleted on .*; batches after its checkpoint are among them"
    ):
        resume_run(run=failed)


def test_the_database_keeps_the_record_consistent(ended: Run, work: Work) -> None:
    deletion = ask(ended)
    work()
    rollout = rollouts(ended)[0]
    for change in (
        lambda: Rollout.objects.filter(pk=rollout.pk).update(deletion=None),
        lambda: FileDeletion.objects.create(kind="trajectories"),
        lambda: FileDeletion.objects.filter(pk=deletion.pk).update(requested_by=None, kind="versions"),
        lambda: FileDeletion.objects.filter(pk=deletion.pk).update(state="running"),
        lambda: FileDeletion.objects.filter(pk=deletion.pk).update(state="stopped"),
        lambda: FileDeletion.objects.filter(pk=deletion.pk).update(marked=0),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            change()
