"""HTTP API of corpora: request, progress, deletion."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import File, Form, Router, Status
from ninja.files import UploadedFile

from composer_web.api.auth import caller, needs
from composer_web.api.schemas import ErrorOut
from composer_web.datasets import corpora, corpus_services
from composer_web.datasets.schemas import CorpusIn, CorpusOut, CorpusWanted

router = Router()


@router.get(
    "", response=list[CorpusOut], summary="Corpora of the project, newest first, then those of the installation"
)
def list_corpora(request: HttpRequest) -> Any:
    return corpora.listed()


@router.post(
    "", response={201: CorpusOut, 409: ErrorOut, 422: ErrorOut}, auth=needs("operate"), summary="Prepare a corpus"
)
def create_corpus(request: HttpRequest, payload: CorpusIn) -> Any:
    """Prepare a corpus from repositories, environments, and files in the data folder. Poll it until its state is `done`; runs
    then name it."""
    wanted = CorpusWanted.model_validate(payload.model_dump(exclude={"name"}))
    return Status(201, corpus_services.ask(name=payload.name, wanted=wanted, actor=caller(request)))


@router.post(
    "/{name}/files",
    response={201: CorpusOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Prepare a corpus of uploaded files",
)
def upload_corpus(request: HttpRequest, name: str, file: File[list[UploadedFile]], wanted: Form[CorpusWanted]) -> Any:
    """JSONL or Parquet with a text a row, and further sources."""
    files = {str(one.name): one for one in file}
    return Status(201, corpus_services.ask(name=name, wanted=wanted, files=files, actor=caller(request)))


@router.get("/{name}", response={200: CorpusOut, 404: ErrorOut}, summary="One corpus, with its provenance")
def get_corpus(request: HttpRequest, name: str) -> Any:
    return corpora.get(name)


@router.delete(
    "/{name}",
    response={204: None, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Remove a corpus that no run names",
)
def remove_corpus(request: HttpRequest, name: str) -> Any:
    corpus_services.remove(corpus=corpora.get(name), actor=caller(request))
    return Status(204, None)
