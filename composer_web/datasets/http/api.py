"""HTTP API of datasets: request, progress, deletion."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import File, Form, Router, Status
from ninja.files import UploadedFile

from composer_web.api.auth import caller, needs
from composer_web.api.schemas import ErrorOut
from composer_web.datasets import selectors, services
from composer_web.datasets.schemas import DatasetIn, DatasetOut, Wanted

router = Router()
MAX = 500


@router.get("", response=list[DatasetOut], summary="Datasets, newest first")
def list_datasets(request: HttpRequest) -> Any:
    return list(selectors.datasets().defer(None).select_related("created_by")[:MAX])


@router.post(
    "", response={201: DatasetOut, 409: ErrorOut, 422: ErrorOut}, auth=needs("operate"), summary="Prepare a dataset"
)
def create_dataset(request: HttpRequest, payload: DatasetIn) -> Any:
    """Prepare a dataset from rollouts or from files in the data folder. Poll it until its state is `done`; runs then name it."""
    wanted = Wanted.model_validate(payload.model_dump(exclude={"name"}))
    return Status(201, services.ask(name=payload.name, wanted=wanted, actor=caller(request)))


@router.post(
    "/files",
    response={201: DatasetOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Prepare a dataset of an uploaded file",
)
def upload_dataset(request: HttpRequest, file: File[UploadedFile], name: Form[str]) -> Any:
    """JSONL, JSON or Parquet of messages, or ATIF; decontaminated against every suite that is held out or a benchmark."""
    files = {str(file.name): file}
    return Status(201, services.ask(name=name, wanted=Wanted(), files=files, actor=caller(request)))


@router.get("/{dataset_id}", response={200: DatasetOut, 404: ErrorOut}, summary="One dataset")
def get_dataset(request: HttpRequest, dataset_id: int) -> Any:
    return selectors.get_dataset(dataset_id)


@router.delete(
    "/{dataset_id}",
    response={204: None, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Remove a dataset that no run names",
)
def remove_dataset(request: HttpRequest, dataset_id: int) -> Any:
    services.remove(dataset=selectors.get_dataset(dataset_id), actor=caller(request))
    return Status(204, None)
