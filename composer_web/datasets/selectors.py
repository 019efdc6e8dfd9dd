"""Read queries of datasets."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from composer_web.core.errors import NotFound, UserError
from composer_web.datasets.models import Dataset
from composer_web.datasets.services import incoming
from trainer.sft.conversations.readers import SUFFIXES
from trainer.sft.conversations.store import Provenance

MAX_SHOWN = 200


def datasets() -> QuerySet[Dataset]:
    """For lists: without what they are made of."""
    return Dataset.objects.select_related("created_by").defer("provenance", "wanted")


def get_dataset(pk: int) -> Dataset:
    """Raises NotFound."""
    found = Dataset.objects.select_related("created_by").filter(pk=pk).first()
    if found is None:
        raise NotFound("dataset", pk)
    return found


def find(name: str) -> Dataset | None:
    return datasets().filter(name=name).first()


def ready(name: str, *, project: int | None = None, field: str = "stage.dataset") -> tuple[Dataset, Provenance]:
    """The prepared dataset of this name. Raises UserError that says what there is."""
    rows = Dataset.objects.all() if project is None else Dataset.objects.filter(project_id=project)
    found = rows.filter(name=name).first()
    if found is None:
        known = ", ".join(names()) or "none yet; prepare one on the page Datasets"
        raise UserError(field, f"there is no dataset {name!r}; there are: {known}")
    if found.provenance is None:
        raise UserError(field, f"dataset {name!r} is {found.state}{f': {found.cause}' if found.cause else ''}")
    return found, Provenance.model_validate(found.provenance)


def names() -> list[str]:
    """Names of the datasets that a run can train on."""
    return list(Dataset.objects.filter(state="done").order_by("name").values_list("name", flat=True)[:MAX_SHOWN])


def waiting_files(suffixes: Sequence[str] = SUFFIXES) -> list[str]:
    """Folders and files of these suffixes in the folder for uploads too large for a browser."""
    if not incoming().is_dir():
        return []
    return sorted(
        path.name for path in incoming().iterdir() if path.is_dir() or path.suffix in suffixes
    )[:MAX_SHOWN]  # fmt: skip
