"""Text by reference: an environment's checkout, a local repository, or a corpus. Policies are measured on it, runs measure
their loss on it, and corpora are made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from composer_web.core.errors import UserError
from composer_web.datasets import corpora
from composer_web.datasets.corpora import MAX_SHOWN, Known
from composer_web.repositories import places
from composer_web.repositories.models import Environment, Repository, SourceKind
from sandbox.errors import TaskError
from sandbox.repositories import git
from trainer.midtrain.corpus.store import DOCUMENTS

PATTERN = re.compile(r"(environment|repository|corpus):([\w][\w.@-]{0,119})")
REMEDY = "write environment:NAME, repository:NAME or corpus:NAME"


@dataclass(frozen=True, slots=True)
class Place:
    """Location of its text. `history`: whether recent commits can be identified."""

    name: str
    path: Path
    history: bool
    revision: str = ""
    """Commit and licence of an environment's checkout, which does not hold them itself."""
    licence: str = ""


def offered(known: Known | None = None) -> list[tuple[str, list[str]]]:
    """Choices of a form: the label of each kind, and the references visible in the project. `known`: what is there, where the
    caller has asked already."""
    known = known or corpora.known()
    return [
        *repositories(),
        *([("Corpora", [f"corpus:{name}" for name in known.prepared])] if known.prepared else []),
    ]


def repositories() -> list[tuple[str, list[str]]]:
    """The same without corpora: what a corpus can be made of."""
    ready = Environment.objects.filter(state="ready").exclude(digest=None).order_by("name")
    local = Repository.objects.filter(kind=SourceKind.PATH).order_by("name")
    found = [
        ("Repositories of this machine", [f"repository:{name}" for name in _names(local)]),
        ("Environments", [f"environment:{name}" for name in _names(ready)]),
    ]
    return [(words, names) for words, names in found if names]


def of_runs(known: Known) -> list[str]:
    """What a run can measure its loss on: plain folders beside the corpora, by their names, and references."""
    return [*known.folders, *(name for _, names in offered(known) for name in names)]


def _names(rows: object) -> list[str]:
    return list(rows.values_list("name", flat=True)[:MAX_SHOWN])  # type: ignore[attr-defined]


def find(reference: str, field: str = "codebase") -> Place:
    """Raises UserError with the value found and the remedy."""
    found = PATTERN.fullmatch(reference)
    if found is None:
        raise UserError(field, f"{field} is {reference[:80]!r}: {REMEDY}")
    try:
        return {"environment": _environment, "repository": _repository, "corpus": _corpus}[found[1]](found[2])
    except UserError as error:
        raise UserError(field, error.message) from error


def of_run(name: str) -> Place:
    """What a run's `stage.codebase` names: a reference, or a folder beside the corpora. Raises UserError."""
    field = "stage.codebase"
    if ":" in name:
        return find(name, field)
    if not corpora.visible(name):
        raise UserError(
            field,
            f"there is no folder {name!r} in {corpora.root()}; write repository:NAME, environment:NAME or corpus:NAME, clone "
            "the repository there, or name none",
        )
    return _corpus(name)


def _environment(name: str) -> Place:
    row = Environment.objects.select_related("repository").filter(name=name).first()
    if row is None:
        raise UserError("codebase", f"there is no environment {name!r}; `opencomposer environments list` names them")
    if row.state != "ready" or row.digest is None:
        raise UserError("codebase", f"environment {name!r} is {row.state}; use it when it is ready")
    try:
        path, source = places.store().repository(row.digest), row.repository
        return Place(name, path, False, *((source.pin, source.licence) if source else ()))
    except TaskError as error:
        raise UserError("codebase", str(error)) from error


def _repository(name: str) -> Place:
    row = Repository.objects.filter(name=name).first()
    if row is None:
        raise UserError("codebase", f"there is no repository {name!r}; `opencomposer repositories list` names them")
    if row.kind != SourceKind.PATH:
        raise UserError(
            "codebase",
            f"repository {name!r} is fetched for each build and its history is not kept; name environment:{name}, or a "
            "clone of it that is added as a repository of its own",
        )
    try:
        return Place(name, git.check_path(row.location, roots=places.git_roots()), history=True)
    except TaskError as error:
        raise UserError("codebase", str(error)) from error


def _corpus(name: str) -> Place:
    """A prepared corpus, or a folder or git repository placed beside them."""
    if not corpora.visible(name):
        raise UserError("", f"there is no corpus {name!r}; there are: {corpora.listed_names()}")
    folder = corpora.folder_of(name)
    documents = folder / DOCUMENTS
    return Place(name, documents, history=False) if documents.is_file() else Place(name, folder, history=True)
