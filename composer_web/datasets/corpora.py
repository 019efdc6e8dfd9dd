"""Corpora by name: those of a project, and those that `manage.py corpus` or a person put into the folder."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from composer_web.core.errors import NotFound, UserError
from composer_web.datasets.models import Corpus
from composer_web.env import env
from trainer.midtrain.corpus import store
from trainer.midtrain.corpus.readers import SourceUnreadable

MAX_SHOWN = 200
WHERE = "prepare one on the page Corpora, or with `opencomposer corpora create`"


class Known(NamedTuple):
    """Names in the project: corpora that a run can train on, and plain folders beside them, whose loss it can measure."""

    prepared: list[str]
    folders: list[str]


def root() -> Path:
    return env().data / "corpora"


def folder_of(name: str) -> Path:
    return root() / name


def known() -> Known:
    own = Corpus.objects.filter(state="done").values_list("name", flat=True)
    plain = _plain()
    installed = [path.name for path in plain if _complete(path)]
    return Known(
        sorted({*own, *installed})[:MAX_SHOWN], [path.name for path in plain if not _complete(path)][:MAX_SHOWN]
    )


def listed_names() -> str:
    """For an error: what there is."""
    return ", ".join(known().prepared) or f"none yet; {WHERE}"


def visible(name: str) -> bool:
    """Whether it is a folder of the project, or of the installation."""
    if not folder_of(name).is_dir():
        return False
    return Corpus.objects.filter(name=name).exists() or not Corpus._base_manager.filter(name=name).exists()


def provenance(name: str, field: str) -> store.Provenance:
    """Facts of a prepared corpus. Raises UserError that says what there is."""
    row = Corpus.objects.filter(name=name).first()
    if row is not None and row.state != "done":
        raise UserError(field, f"corpus {name!r} is {row.state}{f': {row.cause}' if row.cause else ''}")
    try:
        if not visible(name):
            raise SourceUnreadable(name)
        return store.provenance(folder_of(name))
    except SourceUnreadable as error:
        there = ", ".join(known().prepared) or "none yet"
        raise UserError(field, f"there is no prepared corpus {name!r}; there are: {there}; {WHERE}") from error


def listed() -> list[Corpus]:
    """Those of the project, newest first, then those of the installation, which have no row."""
    rows = list(Corpus.objects.select_related("created_by")[:MAX_SHOWN])
    return [*rows, *(found for path in _plain()[:MAX_SHOWN] if (found := _installed(path)))]


def get(name: str) -> Corpus:
    """Raises NotFound."""
    row = Corpus.objects.select_related("created_by").filter(name=name).first()
    if row is None:
        row = next((found for path in _plain() if path.name == name and (found := _installed(path))), None)
    if row is None:
        raise NotFound("corpus", name)
    return row


def _plain() -> list[Path]:
    """Folders that no project prepares."""
    taken = set(Corpus._base_manager.values_list("name", flat=True))
    if not root().is_dir():
        return []
    return sorted(
        path for path in root().iterdir() if path.is_dir() and path.name not in taken and not path.name.startswith(".")
    )


def _complete(path: Path) -> bool:
    return (path / store.PROVENANCE).is_file()


def _installed(path: Path) -> Corpus | None:
    """A prepared folder as if it had a row; None where it is none or cannot be read."""
    try:
        made = store.provenance(path)
        at = datetime.fromtimestamp((path / store.PROVENANCE).stat().st_mtime, UTC)
    except (SourceUnreadable, OSError):
        return None
    found = Corpus(name=path.name, state="done", created_at=at, finished_at=at)
    for field, value in figures(made).items():
        setattr(found, field, value)
    return found


def figures(made: store.Provenance) -> dict[str, object]:
    """Fields of a row that say what the corpus holds."""
    return {
        "provenance": made.model_dump(mode="json"),
        "documents": made.documents,
        "characters": made.characters,
        "dropped": sum(made.dropped.values()),
    }
