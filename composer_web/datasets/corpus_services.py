"""Writes of corpora: requested on a page, by API or CLI, prepared by a worker, deletable while no run uses them."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.core.queue.outbox import enqueue
from composer_web.datasets import codebases, corpora, guards, services
from composer_web.datasets.models import Corpus
from composer_web.datasets.schemas import CorpusWanted
from composer_web.datasets.services import Upload
from composer_web.live.hints import hint
from composer_web.runs.models import Run
from trainer.midtrain.corpus.readers import is_git
from trainer.midtrain.corpus.store import PROVENANCE, Provenance, Source, prepare, provenance

SUFFIXES = (".jsonl", ".parquet")


def ask(
    *, name: str, wanted: CorpusWanted, files: Mapping[str, Upload] | None = None, actor: User | None = None
) -> Corpus:
    """A worker will prepare it. Raises UserError naming the field, Conflict when the name is taken."""
    services.check_name(name)
    for reference in wanted.sources:
        sources_of(reference)
    if not (wanted.sources or files):
        raise UserError("files", "choose files, a folder or a repository: a corpus needs a source")
    services.fit(files or {}, SUFFIXES)
    kept = wanted.model_copy(update={"suites": guards.chosen(wanted.suites)})
    taken = Conflict(f"there is a corpus or folder {name!r} already; choose another name, or remove that one", "name")
    if corpora.folder_of(name).exists():
        raise taken
    try:
        with transaction.atomic():
            made = Corpus.objects.create(name=name, wanted=kept.model_dump(mode="json"), created_by=actor)
            services.keep(made, files or {})
            audit(actor=actor, action="corpus.create", target=f"corpus:{made.pk}", name=name)
            enqueue("datasets.prepare_corpus", {"corpus_id": made.pk}, queue="io", key=f"corpus:{made.pk}")
            hint("datasets")
    except IntegrityError as error:  # in this project, in another, or asked for at the same time
        raise taken from error
    return made


def sources_of(reference: str) -> list[Source]:
    """What one source of a request names: a repository or environment, or files below `incoming`. A folder with JSONL or Parquet
    files is read as these. Raises UserError."""
    if reference.startswith(("environment:", "repository:")):
        place = codebases.find(reference, "sources")
        return [Source(place.path, place.name, place.revision, place.licence)]
    path = services.below(reference, "sources")
    if path.is_file() and path.suffix not in SUFFIXES:
        raise UserError("sources", f"{reference!r} is no {' or '.join(SUFFIXES)} file; give one, or a folder")
    if path.is_dir() and not is_git(path):
        rows = sorted(
            one for one in path.iterdir() if one.suffix in SUFFIXES and one.is_file() and not one.is_symlink()
        )
        if rows:
            return [Source(row, f"{reference.strip('/')}/{row.name}") for row in rows]
    return [Source(path, reference.strip("/"))]


def write(corpus_id: int) -> str:
    """Prepare it; returns what became of it, for the log. A second delivery does nothing, or begins anew after a death.

    The task holds a lease. Raises LeaseLost where another worker prepares it by now.
    """
    return services.carry_out(Corpus, corpus_id, _prepared)


def _prepared(corpus: Corpus) -> str:
    complete = (corpora.folder_of(corpus.name) / PROVENANCE).is_file()  # by a worker that died before it could say so
    made = provenance(corpora.folder_of(corpus.name)) if complete else _written(corpus)
    services.say(corpus, state="done", finished_at=timezone.now(), **corpora.figures(made))
    return f"{made.documents} documents"


def _written(corpus: Corpus) -> Provenance:
    wanted = CorpusWanted.model_validate(corpus.wanted)
    sources = [source for reference in wanted.sources for source in sources_of(reference)]
    uploads = services.uploads_of(corpus)
    if uploads.is_dir():
        sources += [Source(file) for file in sorted(uploads.iterdir())]
    suites, end = wanted.suites or [], time.monotonic() + services.MAX_SECONDS
    return prepare(
        corpora.folder_of(corpus.name),
        sources,
        against=guards.tasks_of(suites),
        guards=guards.guards_of(suites),
        look=lambda: services.look(end),
    )


def remove(*, corpus: Corpus, actor: User | None = None) -> None:
    """With its files. Raises Conflict while it is prepared, when a run names it, and for one of the installation."""
    if corpus.installed:
        folder = corpora.folder_of(corpus.name)
        raise Conflict(f"corpus {corpus.name!r} is of the installation: an operator of the machine removes {folder}")
    if run := _naming(corpus):
        raise Conflict(f"run {run} names corpus {corpus.name!r}: it stays for what was learned from it")
    if corpus.state == "running":
        raise Conflict(f"corpus {corpus.name!r} is being prepared; wait until that has ended")
    with transaction.atomic():
        audit(actor=actor, action="corpus.remove", target=f"corpus:{corpus.pk}", name=corpus.name)
        places = (corpora.folder_of(corpus.name), services.uploads_of(corpus))
        Corpus.objects.filter(pk=corpus.pk).delete()
        hint("datasets")
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def _naming(corpus: Corpus) -> int | None:
    """A run of the project that trains or measures on it."""
    name = corpus.name
    named = (
        Q(config__stage__corpus=name)
        | Q(config__stage__replay_corpus=name)
        | Q(config__stage__codebase__in=[name, f"corpus:{name}"])
        | Q(config__stage__corpus_mixture__regex=rf"(^|,)\s*{re.escape(name)}\s*=")
    )
    return Run.objects.filter(named, project=corpus.project).values_list("pk", flat=True).first()
