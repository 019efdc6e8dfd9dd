"""Writes of mid-training studies: creation with all their runs, and stopping."""

from __future__ import annotations

from django.db import transaction

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import UserError
from composer_web.live.hints import hint
from composer_web.runs import services as runs
from composer_web.runs.models import RUN_LIVE, Run
from composer_web.studies.levels import LEVELS
from composer_web.studies.models import Study, StudyRun
from composer_web.studies.schemas import StudyIn
from trainer.config import RunConfig


@transaction.atomic
def create_study(*, wanted: StudyIn, actor: User | None = None) -> Study:
    """Create and queue the runs of every level and seed; each starts after the one before it. All or none.

    Raises UserError or Conflict naming the field of the study.
    """
    study = Study.objects.create(name=wanted.name, wanted=wanted.model_dump(mode="json"), created_by=actor)
    audit(actor=actor, action="study.create", target=f"study:{study.pk}", name=study.name, seeds=wanted.seeds)
    for seed in wanted.seeds:
        for level in LEVELS:
            before: Run | None = None
            for config in wanted.chain(level, seed):
                before = _queued(config, before, actor)
                StudyRun.objects.create(study=study, run=before, level=level)
    hint("runs")
    return study


def _queued(config: RunConfig, before: Run | None, actor: User | None) -> Run:
    """Raises UserError, Conflict."""
    try:
        run = runs.create_run(config=config, actor=actor, start_after=before)
        return runs.start_run(run=run, actor=actor)
    except UserError as error:
        fields = {_field(path, config): message for path, message in error.fields.items()}
        raise UserError(_field(error.field, config), error.message, code=error.code, fields=fields) from error


def _field(path: str, config: RunConfig) -> str:
    """Field of the study for a field of one of its runs: `stage.suite` of RL is `rl.suite`."""
    if path == "stage.codebase":
        return "codebase"
    head, _, rest = path.partition(".")
    return f"{config.stage.kind}.{rest}".rstrip(".") if head == "stage" else path


@transaction.atomic
def stop_study(*, study: Study, actor: User | None = None) -> int:
    """Cancel what has not ended; returns how many runs. Idempotent."""
    # The last of each chain first: after their predecessor they would have failed.
    live = Run.objects.filter(place_in_study__study=study, state__in=RUN_LIVE).order_by("-pk")
    stopped = [runs.cancel_run(run=run, actor=actor) for run in live]
    audit(actor=actor, action="study.stop", target=f"study:{study.pk}", runs=len(stopped))
    return len(stopped)
