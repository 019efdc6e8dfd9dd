"""One seeded product for a whole module of tests, and a browser in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from composer_web.accounts.models import DEFAULT_PROJECT, Invitation, User
from composer_web.accounts.services import create_token
from composer_web.alerts.models import Alert, Delivery, Notice, Rule, Webhook
from composer_web.core.models import WorkerHeartbeat, WorkerSample
from composer_web.datasets.models import Corpus, Dataset, DatasetRollout
from composer_web.evals.models import Release
from composer_web.evals.results.statistics import Statistics
from composer_web.gateway.models import Session, SessionDraft, SessionExport, SessionUse
from composer_web.policies.models import Measurement, MeasurementOrder, Policy, PolicyImport
from composer_web.quotas.models import Quota
from composer_web.repositories.models import BuildLine, Environment, Repository
from composer_web.review.models import Annotation, Draft
from composer_web.rollouts.export_models import Export
from composer_web.rollouts.models import Fork, Group, Quarantine, Rollout
from composer_web.runs.deletion_models import FileDeletion
from composer_web.runs.models import (
    ChartLayout,
    DefaultChartLayout,
    Report,
    Run,
    RunLog,
    RunTemplate,
    Sweep,
    TrainBatch,
    TrainedStep,
)
from composer_web.studies.models import Study, StudyRun
from composer_web.studies.schemas import StudyIn
from composer_web.tasks.models import GenerationJob, GeneratorRun, ImportedTrajectory, Suite, TaskStatistic, TaskVersion
from composer_web.ui.models import ListName, SavedView
from tests.browser import seed
from tests.support.snapshot import Snapshot
from trainer.config import RunConfig
from trainer.model_selection.scores import FileBits, Selection, rate
from trainer.toy.preset import toy_midtrain, toy_rl, toy_sft

lively = Snapshot("lively", lambda: seed.world(steps=12, groups=4))
few = Snapshot("few", lambda: seed.world(steps=6, groups=2))


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[seed.World]:
    """One seeded product for the whole module, in a transaction that is rolled back at its end."""
    with django_db_blocker.unblock(), transaction.atomic():  # type: ignore[attr-defined]
        yield lively()
        transaction.set_rollback(True)


def client(world: seed.World, role: str = "operator") -> Client:
    made = Client()
    made.force_login(world.people[role])
    return made


def count_queries(visitor: Client, path: str) -> int:
    """Queries of the second look, whose caches are warm."""
    visitor.get(path)
    with CaptureQueriesContext(connection) as seen:
        assert visitor.get(path).status_code == 200
    return len(seen)


def the_rest(owner: User, word: str) -> None:
    """One of each kind that the seeded product lacks, with `word` in its name."""
    rollout = Rollout.objects.select_related("group__run__policy_in").exclude(group__run=None).earliest("pk")
    rollout.group.run.name = f"{word} run"
    rollout.group.run.save(update_fields=["name"])
    suite, now = Suite.objects.earliest("pk"), timezone.now()
    Sweep.objects.create(name=f"{word} sweep", fields=[["seed", [1, 2]]], created_by=owner)
    _study(owner, word)
    RunTemplate.objects.create(name=f"{word} template", config=rollout.group.run.config, created_by=owner)
    for table in ListName:
        SavedView.objects.create(owner=owner, table=table, name=f"{word} {table} view", shared=True)
    Export.objects.create(owner=owner, format="csv")
    dataset = Dataset.objects.create(name=f"{word}-dataset", created_by=owner)
    DatasetRollout.objects.create(dataset=dataset, rollout=rollout)
    Corpus.objects.create(name=f"{word}-corpus", created_by=owner)
    FileDeletion.objects.create(
        run=rollout.group.run, kind="versions", state="done", items=1, requested_by=owner, finished_at=now
    )
    counted = Statistics(tasks=1, lines=1, files=1, prompt_characters=1).model_dump()
    Release.objects.create(benchmark=f"{word}-bench", number=1, suite=suite, digest="0" * 64, statistics=counted)
    Environment.objects.create(name=f"{word}-environment")
    ImportedTrajectory.objects.create(name=f"{word.lower()}-t", title=word, format="atif", steps=1)
    if not Fork.objects.exists():
        policy = Policy.objects.earliest("pk")
        fork = Fork.objects.create(parent=rollout, turn=1, policy=policy, conditions={}, created_by=owner)
        version = rollout.group.task_version
        Group.objects.create(fork=fork, task_version=version, prompt_index=0, size=1)
    if not Draft.objects.exists():
        Draft.objects.create(slug=f"{word.lower()}-draft", rollout=rollout, turn=1, instruction=word)
    if not Session.objects.exists():
        Session.objects.create(
            channel="production", owner=owner, client_id=word, policy=Policy.objects.earliest("pk"), version=0,
            oldest_version=0, expires_at=now + timedelta(days=1),
        )  # fmt: skip
    create_token(user=owner, name=f"{word} token", scopes=["read"])
    Invitation.objects.create(username=f"{word}-guest", digest=word, expires_at=now + timedelta(days=1))
    Quota.objects.create(project_id=DEFAULT_PROJECT, concurrent_rollouts=8)
    WorkerHeartbeat.objects.create(name="worker@machine", kind="rollout", pid=1, started_at=now, beat_at=now)
    later = now + timedelta(hours=1)  # it is one of now however long a test takes
    WorkerSample.objects.create(
        worker="worker@machine", kind="rollout", host="machine", at=later, runs=[rollout.group.run_id], cpu=1.0, memory=1,
        host_cpu=0.5, host_cores=2, host_memory=1, host_memory_total=2,
    )  # fmt: skip
    _alerts(owner)
    _supply(word)
    measurements(word)
    SessionExport.objects.create(session=Session.objects.earliest("pk"), export=Export.objects.earliest("pk"))
    SessionDraft.objects.create(session=Session.objects.earliest("pk"), draft=Draft.objects.earliest("pk"))
    run = rollout.group.run
    SessionUse.objects.create(run=run, step=1, place=0, session=Session.objects.earliest("pk"), turns=1, signals=0)
    TrainBatch.objects.create(run=run, step=1, group_ids=[rollout.group_id])
    ChartLayout.objects.create(
        kind=run.kind, run=run, panels=[{"title": word, "keys": ["reward/mean"]}], changed_by=owner
    )
    RunLog.objects.create(run=run, at=now, process="trainer@a/1", level="info", message=word)
    DefaultChartLayout.objects.create(kind="sft", panels=[{"title": word, "keys": ["loss/train"]}], changed_by=owner)
    panel = {"kind": "panel", "title": word, "keys": ["reward/mean"], "runs": [run.pk]}
    Report.objects.create(title=f"{word} report", blocks=[{"kind": "text", "text": word}, panel], author=owner)
    TrainedStep.objects.create(run=run, step=1, token=1, digest="0" * 64)
    Quarantine.objects.create(rollout=rollout)
    Annotation.objects.create(rollout=rollout, kind="comment", text=word, author=owner)
    GenerationJob.objects.create(name=f"{word.lower()}-job", generators=["mutation"], packages=[word], requested=4)


def _study(owner: User, word: str) -> None:
    """A study with one chain of drafts."""
    stages = {"midtrain": toy_midtrain(), "sft": toy_sft(), "rl": toy_rl()}
    wanted = StudyIn(name=f"{word} study", policy="base", **stages).model_dump(mode="json")
    study = Study.objects.create(name=f"{word} study", wanted=wanted, created_by=owner)
    for kind, stage in stages.items():
        config = RunConfig(name=f"{word} {kind}", stage=stage).model_dump(mode="json")
        run = Run.objects.create(
            name=config["name"],
            kind=kind,
            config=config,
            policy_in=Policy.objects.earliest("pk"),
            steps_total=stage.steps,
        )
        StudyRun.objects.create(study=study, run=run, level="S")


def _alerts(owner: User) -> None:
    """A rule that told a person, and an address outside: of the installation, not of a project."""
    now = timezone.now()
    webhook = Webhook.objects.create(name="hook", url="https://alerts.lan/", secret="sealed")
    rule = Rule.objects.create(name="rule", kind="finding", webhook=webhook)
    alert = Alert.objects.create(rule=rule, about="worker:one", message="one died", opened_at=now, seen_at=now)
    Notice.objects.create(user=owner, alert=alert)
    Delivery.objects.create(alert=alert, webhook=webhook, body={}, due_at=now)


def measurements(word: str) -> None:
    """Every policy on one codebase, as candidates for a base."""
    for policy in Policy.objects.all():
        found = Selection(
            policy=policy.at(0), codebase=word, revision="", before="", text_digest=word, window=512, codebase_nll=9.0,
            codebase_tokens=5, codebase_bytes=20, bits_per_byte=rate([(13.0, 20.0)]), recent_bits_per_byte=None, recent_bytes=0,
            unknown_tokens=0, bytes_per_second=100.0, state_distance=rate([(4.0, 1.0)]), state_items=1,
            files=[FileBits(path="a.py", bits=13.0, bytes=20)],
        )  # fmt: skip
        Measurement.objects.create(
            policy=policy, version=0, codebase=word, text_digest=word, window=512, result=found.model_dump()
        )
        MeasurementOrder.objects.create(policy=policy, version=0, wanted={"codebase": f"environment:{word}"}, key="")
    PolicyImport.objects.create(
        name=f"imported-{word}", path=f"/models/{word}", state="failed", cause="not there", finished_at=timezone.now()
    )


def _supply(word: str) -> None:
    """Where tasks come from, and what is known of them."""
    repository = Repository.objects.create(name=f"{word}-repository", kind="git", location="https://git.lan/one.git")
    environment = Environment.objects.get(name=f"{word}-environment")
    Environment.objects.filter(pk=environment.pk).update(repository=repository)
    BuildLine.objects.create(environment=environment, text="a line of its build")
    GeneratorRun.objects.create(generator="deletion", package="toolz", split="train", tried=4, kept=1, seconds=2.0)
    TaskStatistic.objects.create(
        task_version=TaskVersion.objects.earliest("pk"), policy="base", evaluation_id=1, samples=4, passed=1,
        measured_at=timezone.now(),
    )  # fmt: skip
