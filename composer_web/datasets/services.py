"""Writes of datasets: requested on a page, by API or CLI, prepared by a worker, deletable while no run uses them."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeVar

from django.db import transaction
from django.utils import timezone

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT, Project, User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue
from composer_web.datasets import choosing, guards
from composer_web.datasets.models import OPEN, Corpus, Dataset, DatasetRollout, Prepared
from composer_web.datasets.schemas import NAME, Wanted
from composer_web.env import env
from composer_web.live.hints import hint
from composer_web.runs.models import Run
from trainer.midtrain.corpus.readers import SourceUnreadable, printable
from trainer.sft.conversations.conversation import Conversation, SourceFacts, Unfit
from trainer.sft.conversations.readers import SUFFIXES
from trainer.sft.conversations.store import PROVENANCE, Provenance, file_sources, prepare, provenance, read_sources

MAX_SECONDS = 3000.0
"""Deadline of one preparation."""
MAX_UPLOAD = 256 << 20
MAX_FILES = 50
CHUNK = 1 << 20
P = TypeVar("P", bound=Prepared)


class Upload(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def root() -> Path:
    return env().data / "datasets"


def incoming() -> Path:
    """Where an operator of the machine puts files that are too large for a browser."""
    return env().data / "incoming"


def folder_of(dataset: Dataset) -> Path:
    return root() / str(dataset.pk)


def uploads_of(made: Prepared) -> Path:
    return root() / f"{'corpus-' if isinstance(made, Corpus) else ''}{made.pk}.sources"


def ask(*, name: str, wanted: Wanted, files: Mapping[str, Upload] | None = None, actor: User | None = None) -> Dataset:
    """A worker will prepare it. Raises UserError naming the field, Conflict when the name is taken."""
    check_name(name)
    if wanted.folder:
        below(wanted.folder)
    if wanted.rollouts and not choosing.chosen(wanted.rollouts).exists():
        raise UserError("rollouts", f"no graded rollout is left by {wanted.rollouts!r}; widen the filters")
    if not (wanted.folder or wanted.rollouts or files):
        raise UserError("files", "choose files, a folder or rollouts: a dataset needs a source")
    fit(files or {}, SUFFIXES)
    suites = guards.chosen(wanted.suites)
    with transaction.atomic():
        if Dataset.objects.filter(name=name).exists():
            raise Conflict(f"there is a dataset {name!r} already; choose another name, or remove that one", "name")
        kept = wanted.model_copy(update={"suites": suites})
        made = Dataset.objects.create(name=name, wanted=kept.model_dump(mode="json"), created_by=actor)
        keep(made, files or {})
        audit(actor=actor, action="dataset.create", target=f"dataset:{made.pk}", name=name)
        enqueue("datasets.prepare", {"dataset_id": made.pk}, queue="io", key=f"dataset:{made.pk}")
        hint("datasets")
    return made


def check_name(name: str) -> None:
    """Raises UserError."""
    if not re.fullmatch(NAME, name):
        raise UserError("name", f"name is {name!r}: letters, digits, . _ and -, at most 80, beginning with no sign")


def fit(files: Mapping[str, Upload], suffixes: Sequence[str]) -> None:
    """Raises UserError."""
    if len(files) > MAX_FILES:
        raise UserError("files", f"{len(files)} files; at most {MAX_FILES}: put them into a folder below incoming")
    for name in files:
        if PurePosixPath(name).suffix not in suffixes:
            raise UserError("files", f"{name!r} is no {', '.join(suffixes)} file")


def keep(made: Prepared, files: Mapping[str, Upload]) -> None:
    """Uploads are copied in pieces under plain names. Raises UserError for one that is too large."""
    for number, (name, data) in enumerate(files.items()):
        uploads_of(made).mkdir(parents=True, exist_ok=True)
        plain = re.sub(r"[^\w.-]", "_", PurePosixPath(name.replace("\\", "/")).name)[-80:].lstrip(".")
        target, written = uploads_of(made) / f"{number:02d}-{plain}", 0
        with target.open("wb") as out:
            while piece := data.read(CHUNK):
                written += len(piece)
                if written > MAX_UPLOAD:
                    shutil.rmtree(uploads_of(made), ignore_errors=True)
                    raise UserError(
                        "files", f"{name!r} has more than {MAX_UPLOAD} bytes; put it below incoming instead"
                    )
                out.write(piece)


def below(given: str, field: str = "folder") -> Path:
    """A path below `incoming`, links followed. Raises UserError for any other, whether it exists or not."""
    base = incoming().resolve()
    try:
        path = (base / given).resolve()
        there = path.is_relative_to(base) and path.exists()
    except (OSError, ValueError):  # too long for a file system, or with a NUL
        there = False
    if not there:
        raise UserError(field, f"there is no {given!r} in the folder incoming of the data folder; put the files there")
    return path


def write(dataset_id: int) -> str:
    """Prepare it; returns what became of it, for the log. A second delivery does nothing, or begins anew after a death.

    The task holds a lease. Raises LeaseLost where another worker prepares it by now.
    """
    return carry_out(Dataset, dataset_id, _prepared)


def carry_out(rows: type[P], pk: int, prepared: Callable[[P], str]) -> str:
    """Prepare a row that waits, or whose worker died, as the person who asked for it. Raises LeaseLost."""
    found = rows.objects.select_related("created_by").filter(pk=pk, state__in=OPEN).first()
    if found is None:
        return "nothing to do"
    say(found, state="running")
    try:
        project = found.project_id or DEFAULT_PROJECT
        libraries = tuple(Project.objects.filter(library=True, archived_at=None).values_list("pk", flat=True))
        with acting(Access(found.created_by_id or 0, "viewer", project, project, libraries)):
            said = prepared(found)
    except (UserError, SourceUnreadable, OSError) as error:
        say(found, state="failed", cause=printable(str(error), 2000), finished_at=timezone.now())
        return f"failed: {error}"
    shutil.rmtree(uploads_of(found), ignore_errors=True)
    return said


def look(end: float) -> None:
    """Raises LeaseLost, and UserError after the deadline."""
    leases.check()
    if time.monotonic() > end:
        raise UserError("", f"it was not prepared within {MAX_SECONDS / 60:.0f} minutes; choose fewer sources")


def _prepared(dataset: Dataset) -> str:
    complete = (folder_of(dataset) / PROVENANCE).is_file()  # by a worker that died before it could say so
    made = provenance(folder_of(dataset)) if complete else _written(dataset)
    say(
        dataset,
        state="done",
        provenance=made.model_dump(mode="json"),
        conversations=made.conversations,
        dropped=sum(made.dropped.values()),
        finished_at=timezone.now(),
    )
    return f"{made.conversations} conversations"


def _written(dataset: Dataset) -> Provenance:
    from composer_web.datasets import sampling  # only in the worker: it brings torch

    wanted = Wanted.model_validate(dataset.wanted)
    suites = wanted.suites or []
    paths = [below(wanted.folder)] if wanted.folder else []
    uploads = uploads_of(dataset)
    found = file_sources([*paths, *sorted(uploads.iterdir())] if uploads.is_dir() else paths)
    sources: list[SourceFacts] = [facts for _, facts in found]
    ids: list[int] = []
    if wanted.rollouts:
        ids = list(choosing.chosen(wanted.rollouts).values_list("pk", flat=True)[: wanted.most])
        sources.append(choosing.facts_of(wanted.rollouts, ids))
        _name_rollouts(dataset, ids)

    end = time.monotonic() + MAX_SECONDS

    def read() -> Iterator[Conversation | Unfit]:
        for conversation in chain(read_sources(found), sampling.conversations_of(ids)):
            look(end)
            yield conversation

    return prepare(
        folder_of(dataset),
        read(),
        sources=sources,
        guards=guards.guards_of(suites),
        against=guards.tasks_of(suites),
    )


@transaction.atomic
def _name_rollouts(dataset: Dataset, ids: list[int]) -> None:
    """Record which rollouts it is made from, before they are read: their trajectories stay."""
    leases.fence()
    DatasetRollout.objects.filter(dataset=dataset).exclude(rollout__in=ids).delete()
    rows = [DatasetRollout(dataset=dataset, rollout_id=pk) for pk in ids]
    DatasetRollout.objects.bulk_create(rows, ignore_conflicts=True, batch_size=5000)


def say(made: Prepared, **values: object) -> None:
    with transaction.atomic():
        leases.fence()
        type(made)._base_manager.filter(pk=made.pk).update(**values)
    hint("datasets")


def remove(*, dataset: Dataset, actor: User | None = None) -> None:
    """With its files. Raises Conflict while it is prepared, or when a run names it."""
    named = Run.objects.filter(config__stage__dataset=dataset.name, project=dataset.project)
    if run := named.values_list("pk", flat=True).first():
        raise Conflict(f"run {run} names dataset {dataset.name!r}: it stays for what was learned from it")
    if dataset.state == "running":
        raise Conflict(f"dataset {dataset.name!r} is being prepared; wait until that has ended")
    with transaction.atomic():
        audit(actor=actor, action="dataset.remove", target=f"dataset:{dataset.pk}", name=dataset.name)
        places: Iterable[Path] = (folder_of(dataset), uploads_of(dataset))
        Dataset.objects.filter(pk=dataset.pk).delete()
        hint("datasets")
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
