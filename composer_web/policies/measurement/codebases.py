"""Codebases to measure a policy on, by name: an environment's checkout, a local repository, or a corpus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from composer_web.datasets.selectors import corpora
from composer_web.env import env
from composer_web.core.errors import UserError
from composer_web.repositories import places
from composer_web.repositories.models import Environment, Repository, SourceKind
from sandbox.repositories import git
from sandbox.errors import TaskError
from trainer.midtrain.corpus.store import DOCUMENTS

PATTERN = re.compile(r"(environment|repository|corpus):([\w][\w.@-]{0,119})")
MAX_OFFERED = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Location of its text. `history`: whether recent commits can be identified."""

    name: str
    path: Path
    history: bool


def offered() -> list[tuple[str, list[str]]]:
    """Choices of a form: the label of each kind, and the references visible in the project."""
    ready = Environment.objects.filter(state="ready").exclude(digest=None).order_by("name")
    local = Repository.objects.filter(kind=SourceKind.PATH).order_by("name")
    found = [
        ("Repositories of this machine", [f"repository:{name}" for name in _names(local)]),
        ("Environments", [f"environment:{name}" for name in _names(ready)]),
        ("Corpora", [f"corpus:{name}" for name in corpora()]),
    ]
    return [(words, names) for words, names in found if names]


def _names(rows: object) -> list[str]:
    return list(rows.values_list("name", flat=True)[:MAX_OFFERED])  # type: ignore[attr-defined]


def find(reference: str) -> Place:
    """Raises UserError with the value found and the remedy."""
    found = PATTERN.fullmatch(reference)
    if found is None:
        raise UserError(
            "codebase", f"codebase is {reference[:80]!r}: write environment:NAME, repository:NAME or corpus:NAME"
        )
    return {"environment": _environment, "repository": _repository, "corpus": _corpus}[found[1]](found[2])


def _environment(name: str) -> Place:
    row = Environment.objects.filter(name=name).first()
    if row is None:
        raise UserError("codebase", f"there is no environment {name!r}; `opencomposer environments list` names them")
    if row.state != "ready" or row.digest is None:
        raise UserError("codebase", f"environment {name!r} is {row.state}; measure it when it is ready")
    try:
        return Place(name, places.store().repository(row.digest), history=False)
    except TaskError as error:
        raise UserError("codebase", str(error)) from error


def _repository(name: str) -> Place:
    row = Repository.objects.filter(name=name).first()
    if row is None:
        raise UserError("codebase", f"there is no repository {name!r}; `opencomposer repositories list` names them")
    if row.kind != SourceKind.PATH:
        raise UserError(
            "codebase",
            f"repository {name!r} is fetched for each build and its history is not kept; measure environment:{name}, or a "
            "clone of it that is added as a repository of its own",
        )
    try:
        return Place(name, git.check_path(row.location, roots=places.git_roots()), history=True)
    except TaskError as error:
        raise UserError("codebase", str(error)) from error


def _corpus(name: str) -> Place:
    """A prepared corpus, or a folder or git repository placed beside them."""
    folder = env().data / "corpora" / name
    if not folder.is_dir():
        known = ", ".join(corpora()) or "none yet"
        raise UserError("codebase", f"there is no corpus {name!r} in this installation; there are: {known}")
    documents = folder / DOCUMENTS
    return Place(name, documents, history=False) if documents.is_file() else Place(name, folder, history=True)
