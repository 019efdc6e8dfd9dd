"""Checkpoints that somebody uses outlive their run's retention, and older ones are whole again when they are asked for."""

import shutil
from pathlib import Path

import pytest

from composer_web.core.errors import UserError
from composer_web.env import REPOSITORY, env
from composer_web.evals.models import Evaluation
from composer_web.policies.in_use import hold, synchronize
from composer_web.policies.models import Checkpoint, Policy
from composer_web.policies.promotion import services as promotion
from composer_web.policies.selectors import resolve
from composer_web.policies.services import describe_architecture, import_base, record_checkpoint
from composer_web.runs.models import Run, RunState
from composer_web.runs.files.used_checkpoints import uses
from composer_web.tasks.models import Suite
from trainer.checkpoint import in_use
from trainer.weights import differences

pytestmark = pytest.mark.django_db
BASE = REPOSITORY / "policies" / "base"


def step(policy: Policy, number: int) -> Path:
    """A checkpoint of a run of `policy`, recorded."""
    folder = env().data / "checkpoints" / f"run-{policy.pk}" / f"step-{number:06d}"
    shutil.copytree(BASE, folder / "policy")
    record_checkpoint(policy=policy, version=number, path=folder / "policy", final=False)
    return folder


def coded(older: Path, newer: Path) -> bytes:
    """`older` becomes a difference against `newer`; its bytes before."""
    file = older / "policy" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    assert differences.code(file, newer / "policy" / "model.safetensors") is not None
    file.unlink()
    return bytes(data)


@pytest.fixture(autouse=True)
def no_checkpoints() -> None:
    """Those of other tests hold marks."""
    shutil.rmtree(env().data / "checkpoints", ignore_errors=True)


@pytest.fixture
def lineage(db: None) -> Policy:
    return import_base(path=BASE, name="lineage")


def test_promoted_versions_and_what_a_rollback_needs_are_held(lineage: Policy) -> None:
    folders = [step(lineage, number) for number in (1, 2, 3)]
    for number in (1, 2):
        promotion.promote(reference=f"lineage@{number}")
        assert in_use.holders(folders[number - 1]) == {"channel-production"}
    promotion.canary(reference="lineage@3", share=0.5)
    synchronize(uses())
    assert [in_use.holders(folder) for folder in folders] == [{"channel-production"}] * 3
    promotion.end_canary()
    synchronize(uses())
    assert [bool(in_use.holders(folder)) for folder in folders] == [True, True, False]
    promotion.rollback()
    synchronize(uses())
    assert [bool(in_use.holders(folder)) for folder in folders] == [True, False, False]


def test_unfinished_runs_and_evaluations_hold_what_they_start_from(lineage: Policy, running: Run) -> None:
    folders = [step(running.policy_in, running.policy_in_version), step(lineage, 2)]
    Evaluation.objects.create(policy=lineage, version=2, suite=Suite.objects.get(), tasks=1, samples=1, temperature=1.0, phase="alone")
    assert synchronize(uses()) == 2
    assert [in_use.holders(folder) for folder in folders] == [
        {f"run-{running.pk}"}, {f"evaluation-{Evaluation.objects.get().pk}"},
    ]  # fmt: skip
    assert synchronize(uses()) == 0
    Run.objects.filter(pk=running.pk).update(state=RunState.FINISHED)
    Evaluation.objects.update(state="cancelled")
    assert synchronize(uses()) == 2
    assert [in_use.holders(folder) for folder in folders] == [set(), set()]


def test_imported_policies_are_left_alone_and_a_removed_checkpoint_is_refused(lineage: Policy) -> None:
    hold(resolve("lineage@0"), "channel-production")
    assert not (BASE.parent / in_use.FOLDER).exists()
    folder = step(lineage, 4)
    weights = resolve("lineage@4")
    shutil.rmtree(folder)
    with pytest.raises(UserError, match="lineage@4 was just removed by its run's retention"):
        hold(weights, "channel-production")


def test_an_older_checkpoint_is_described_as_it_is_and_whole_when_it_is_used(lineage: Policy) -> None:
    older, newer = step(lineage, 1), step(lineage, 2)
    whole = describe_architecture(older / "policy")
    before = coded(older, newer)
    assert describe_architecture(older / "policy") == whole
    record_checkpoint(policy=lineage, version=2, path=newer / "policy", final=False)
    sizes = dict(Checkpoint.objects.filter(policy=lineage, version__gt=0).values_list("version", "bytes"))
    assert sizes[1] < sizes[2] / 2
    assert (resolve("lineage@1").whole() / "model.safetensors").read_bytes() == before


def test_weights_that_cannot_be_restored_are_an_error_of_the_policy(lineage: Policy) -> None:
    older, newer = step(lineage, 1), step(lineage, 2)
    coded(older, newer)
    shutil.rmtree(newer)
    with pytest.raises(UserError, match="from which it differs, was removed; start from another version") as refused:
        resolve("lineage@1").whole()
    assert refused.value.field == "policy"
