"""Checkpoints of an ended run are deleted, unless somebody uses them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from composer_web.core.errors import Conflict, UserError
from composer_web.core.queue import leases
from composer_web.policies.models import Checkpoint
from composer_web.policies.promotion import services as promotion
from composer_web.policies.selectors import resolve
from composer_web.quotas import limits
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.files import services
from composer_web.runs.files.tasks import delete_files
from composer_web.runs.models import Run
from composer_web.runs.paths import checkpoints_folder
from composer_web.runs.services import create_run, resume_run, start_run
from tests.web.making import SMALL
from trainer.checkpoint import in_use
from trainer.config import RunConfig

pytestmark = pytest.mark.django_db
Step = Callable[..., Path]
Work = Callable[[], list[FileDeletion]]


class Killed(BaseException):
    """The worker dies here."""


def ask(run: Run, *, final: bool = False) -> FileDeletion:
    (made,) = services.delete(run=run, kinds=["checkpoints"], final=final)
    return made


def gone(run: Run) -> set[int]:
    return set(
        Checkpoint.objects.filter(policy=run.policy_out).exclude(removed_at=None).values_list("version", flat=True)
    )


def test_all_but_the_newest_go_and_the_quota_counts_less(ended: Run, step: Step, work: Work) -> None:
    folders = [step(ended, 1), step(ended, 2), step(ended, 3, final=True)]
    ahead = services.plans(ended)[0].amount
    assert (ahead.items, ahead.deleted, ahead.kept) == (3, 2, {"the newest": 1})
    used = limits.use(project_id=ended.project_id).bytes
    ask(ended)
    (done,) = work()
    assert (done.state, done.items, done.bytes) == ("done", 2, ahead.freed)
    assert [folder.exists() for folder in folders] == [False, False, True]
    assert gone(ended) == {1, 2}
    assert limits.use(project_id=ended.project_id).bytes == used - ahead.freed
    delete_files(deletion_id=done.pk)  # a second delivery
    assert FileDeletion.objects.get() == done and folders[2].exists()


def test_an_option_deletes_the_newest_too(ended: Run, step: Step, work: Work) -> None:
    step(ended, 1), step(ended, 2, final=True)
    (checkpoints_folder(ended) / ".step-000001.7.partial").mkdir()
    ask(ended, final=True)
    assert [one.items for one in work()] == [2]
    assert gone(ended) == {1, 2} and not list(checkpoints_folder(ended).iterdir())
    with pytest.raises(UserError, match="has no weights on disk"):
        resolve(ended.policy_out.name)


def test_a_kill_between_two_checkpoints_or_within_one_is_made_good(
    ended: Run, step: Step, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [step(ended, number) for number in (1, 2, 3)]
    freed = services.plans(ended)[0].amount.freed
    deletion, remove = ask(ended), in_use.remove_unless_held
    for name in ("step-000001", "step-000002"):

        def dies(folder: Path, name: str = name) -> bool:
            if folder.name == name:
                folder.rename(folder.with_name(f".{name}.retired"))  # half of what it does
                raise Killed
            return remove(folder)

        with monkeypatch.context() as patch:
            patch.setattr(in_use, "remove_unless_held", dies)
            with pytest.raises(Killed):
                delete_files(deletion_id=deletion.pk)
        assert not any(folder.exists() for folder in folders if int(folder.name[-1]) in gone(ended))
    (done,) = work()
    assert (done.state, done.items, done.bytes, gone(ended)) == ("done", 2, freed, {1, 2})
    assert [path.name for path in checkpoints_folder(ended).iterdir()] == ["step-000003"]


def test_a_version_in_production_is_refused_and_kept(ended: Run, step: Step) -> None:
    step(ended, 1), step(ended, 2)
    promotion.promote(reference=f"{ended.policy_out.name}@1")
    with pytest.raises(
        Conflict, match=r"version 1 of run .* is used by channel-production; promote another version"
    ) as no:
        ask(ended)
    assert no.value.field == "checkpoints" and not FileDeletion.objects.exists()
    assert "channel-production" in services.plans(ended)[0].refused


def test_what_comes_to_be_used_meanwhile_stays_and_the_deletion_says_so(
    ended: Run, step: Step, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [step(ended, number) for number in (1, 2, 3)]
    ask(ended)
    remove = in_use.remove_unless_held

    def held_first(folder: Path) -> bool:
        if folder == folders[1]:
            in_use.hold(folder, "run-99")
        return remove(folder)

    monkeypatch.setattr(in_use, "remove_unless_held", held_first)
    (stopped,) = work()
    assert (stopped.state, stopped.items) == ("stopped", 1)
    assert "version 2 has come to be used by run-99" in stopped.cause
    assert gone(ended) == {1} and folders[1].exists()


def test_an_unfinished_run_that_starts_from_one_is_named(ended: Run, step: Step) -> None:
    step(ended, 1), step(ended, 2)
    child = create_run(config=RunConfig(name="child", policy=f"{ended.policy_out.name}@1", stage=SMALL))
    assert not services.plans(ended)[0].refused  # a draft uses nothing yet
    start_run(run=child)
    with pytest.raises(Conflict, match=f"used by run-{child.pk}; wait for that run, or stop it"):
        ask(ended)


def test_a_run_that_starts_after_it_keeps_the_newest(ended: Run, step: Step) -> None:
    step(ended, 1), step(ended, 2, final=True)
    follower = create_run(config=RunConfig(name="follower", stage=SMALL), start_after=ended)
    assert not services.plans(ended)[0].refused
    with pytest.raises(Conflict, match=f"run {follower.pk} .follower. starts from the newest checkpoint"):
        ask(ended, final=True)


def test_only_of_runs_that_have_ended(running: Run, draft: Run, step: Step) -> None:
    with pytest.raises(Conflict, match="is running; stop it, or wait") as no:
        ask(running)
    assert no.value.field == "state"
    fresh = create_run(config=RunConfig(name="fresh", stage=SMALL))
    with pytest.raises(Conflict, match="is a draft and has no files"):
        ask(fresh)


def test_not_while_its_trainer_ends_its_step(ended: Run, step: Step) -> None:
    held = leases.take(f"run:{ended.pk}", owner="train@test", seconds=60)
    assert held is not None
    with pytest.raises(Conflict, match="still ends its step; try again"):
        ask(ended)
    leases.release(held)
    ask(ended)
    with pytest.raises(Conflict, match="are being deleted already"):
        ask(ended)


def test_a_kind_is_named_and_known(ended: Run) -> None:
    for kinds, words in (([], "name what to delete"), (["logs"], "'logs' is unknown; use some of checkpoints")):
        with pytest.raises(UserError, match=words) as no:
            services.delete(run=ended, kinds=kinds)
        assert no.value.field == "kinds"


def test_a_failed_run_without_its_checkpoints_cannot_be_resumed(failed: Run, step: Step, work: Work) -> None:
    step(failed, 1), step(failed, 2)
    ask(failed)
    work()
    assert resume_run(run=failed).state == "queued"  # from the newest
    Run.objects.filter(pk=failed.pk).update(state="failed")
    ask(failed, final=True)
    with pytest.raises(Conflict, match=r"cannot be resumed: its checkpoints were deleted on .* by retention"):
        resume_run(run=failed)  # a worker begins at any moment
    work()
    with pytest.raises(Conflict, match="start a new run from another policy"):
        resume_run(run=failed)
