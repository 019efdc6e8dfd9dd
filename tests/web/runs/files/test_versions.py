"""Weight versions of an ended run are deleted from its weight store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from composer_web.core import inference
from composer_web.core.errors import Conflict
from composer_web.evals.models import Evaluation
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.files import services
from composer_web.runs.files.tasks import delete_files
from composer_web.runs.models import Run
from composer_web.runs.paths import deployment_name, weights_folder
from composer_web.runs.services import resume_run
from composer_web.tasks.models import Suite
from trainer.errors import StoreBusy
from trainer.inference.contract import DeploymentStatus
from trainer.weights import WeightStore, open_versions
from trainer.weights.versions import Versions

pytestmark = pytest.mark.django_db
Published = Callable[[Run], WeightStore]
Work = Callable[[], list[FileDeletion]]


class Killed(BaseException):
    """The worker dies here."""


def ask(run: Run) -> FileDeletion:
    (made,) = services.delete(run=run, kinds=["versions"])
    return made


def test_every_version_goes_with_the_pins(ended: Run, published: Published, work: Work) -> None:
    store = published(ended)
    store.pin("reference", 1)
    ahead = services.plans(ended)[1].amount
    assert ahead.items == ahead.deleted == 2 and ahead.bytes == ahead.freed > 0
    deletion = ask(ended)
    (done,) = work()
    assert (done.state, done.items, done.bytes) == ("done", 2, ahead.bytes)
    assert store.versions.all() == [] and store.versions.pinned() == set() and store.versions.bytes() == 0
    delete_files(deletion_id=deletion.pk)
    assert services.plans(ended)[1].amount.items == 0


def test_a_kill_between_two_versions_leaves_a_whole_chain_and_is_made_good(
    ended: Run, published: Published, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = published(ended)
    size, remove = store.versions.bytes(), Versions.remove

    def dies(self: Versions, version: int) -> None:
        if version == 0:
            raise Killed
        remove(self, version)

    deletion = ask(ended)
    with monkeypatch.context() as patch:
        patch.setattr(Versions, "remove", dies)
        with pytest.raises(Killed):
            delete_files(deletion_id=deletion.pk)
    assert store.versions.all() == [0] and store.load(0).version == 0
    (done,) = work()
    assert (done.state, done.items, done.bytes, store.versions.all()) == ("done", 2, size, [])


def test_a_store_that_somebody_writes_to_is_tried_again(
    ended: Run, published: Published, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = published(ended)
    ask(ended)
    with monkeypatch.context() as patch:

        def busy(self: Versions) -> None:
            raise StoreBusy("another process is writing")

        patch.setattr(Versions, "writing", busy)
        (waits,) = work()
    assert waits.state == "running" and "another process is writing; it is tried again in a minute" in waits.cause
    (done,) = work()  # the message of that minute
    assert (done.state, done.cause, store.versions.all()) == ("done", "", [])


def test_an_open_evaluation_of_the_run_is_refused(ended: Run, published: Published) -> None:
    published(ended)
    found = Evaluation.objects.create(
        run=ended,
        policy=ended.policy_in,
        suite=Suite.objects.get(),
        phase="during",
        tasks=1,
        samples=1,
        temperature=1.0,
    )
    with pytest.raises(Conflict, match=f"evaluation {found.pk} plays weight versions .* or cancel it") as no:
        ask(ended)
    assert no.value.field == "versions"
    Evaluation.objects.update(state="cancelled")
    ask(ended)


def test_a_deployment_that_answers_requests_is_refused(
    ended: Run, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(ended)
    status = DeploymentStatus(
        name=deployment_name(ended), version=1, digest="d", state="serving", follow=True, running=3
    )

    class Server:
        def __enter__(self) -> Server:
            return self

        def __exit__(self, *_: object) -> None: ...

        def deployments(self) -> list[DeploymentStatus]:
            return [status]

    monkeypatch.setattr(inference, "admin", lambda timeout: Server())
    with pytest.raises(Conflict, match=f"answers 3 requests of run-{ended.pk}; wait"):
        ask(ended)


def test_a_failed_run_cannot_be_resumed_without_them(failed: Run, published: Published, work: Work) -> None:
    published(failed)
    ask(failed)
    work()
    with pytest.raises(Conflict, match=r"its weight versions were deleted on .*; duplicate it to train again") as no:
        resume_run(run=failed)
    assert no.value.field == "state"
    assert open_versions(weights_folder(failed)).all() == []
