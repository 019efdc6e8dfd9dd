"""HTTP API of environments."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import File, Form, Query, Router, Status
from ninja.files import UploadedFile

from composer_web.api.auth import caller, needs
from composer_web.api.paging import MAX_PAGE, page
from composer_web.api.schemas import ErrorOut, Page
from composer_web.repositories import services
from composer_web.repositories.http import selectors
from composer_web.repositories.http.schemas import EnvironmentIn, EnvironmentOut, LogOut, RepositoryIn, RepositoryOut
from composer_web.repositories.requests import request_archive, request_repository
from sandbox.repositories.archives import MAX_PACKED_BYTES

router = Router()


@router.get("", response=Page[EnvironmentOut], summary="List environments")
def list_environments(
    request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None
) -> Any:
    return page(selectors.environments(), limit=limit, before=before)


@router.post(
    "",
    response={201: EnvironmentOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Build an environment",
)
def build(request: HttpRequest, payload: EnvironmentIn) -> Any:
    from composer_web.repositories.building import request_package

    environment = request_package(name=payload.package, actor=caller(request))
    return Status(201, selectors.get_environment(environment.pk))


@router.get("/repositories", response=Page[RepositoryOut], summary="List repositories")
def list_repositories(
    request: HttpRequest, limit: int = Query(50, ge=1, le=MAX_PAGE), before: int | None = None
) -> Any:
    return page(selectors.repositories(), limit=limit, before=before)


@router.post(
    "/repositories",
    response={201: RepositoryOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Add a repository and build its environment",
)
def add_repository(request: HttpRequest, payload: RepositoryIn) -> Any:
    return Status(201, request_repository(**payload.model_dump(), actor=caller(request)))


@router.post(
    "/repositories/archive",
    response={201: RepositoryOut, 409: ErrorOut, 422: ErrorOut},
    auth=needs("operate"),
    summary="Upload a repository as .tar.gz or .zip and build its environment",
)
def upload_repository(request: HttpRequest, archive: File[UploadedFile], name: Form[str] = "") -> Any:
    content = archive.read(MAX_PACKED_BYTES + 1)
    made = request_archive(name=name, filename=archive.name or "", content=content, actor=caller(request))
    return Status(201, made)


@router.post(
    "/{name}/cancel",
    response={200: EnvironmentOut, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Stop a build",
)
def cancel(request: HttpRequest, name: str) -> Any:
    services.cancel_build(environment=selectors.get_environment(name), actor=caller(request))
    return selectors.get_environment(name)


@router.post(
    "/{name}/again",
    response={200: EnvironmentOut, 404: ErrorOut, 409: ErrorOut},
    auth=needs("operate"),
    summary="Build an environment that failed again",
)
def build_again(request: HttpRequest, name: str) -> Any:
    services.build_again(environment=selectors.get_environment(name), actor=caller(request))
    return selectors.get_environment(name)


@router.get("/{name}", response={200: EnvironmentOut, 404: ErrorOut}, summary="One environment")
def get_environment(request: HttpRequest, name: str) -> Any:
    return selectors.get_environment(name)


@router.get("/{name}/log", response={200: LogOut, 404: ErrorOut, 503: ErrorOut}, summary="The last build's log")
def get_log(request: HttpRequest, name: str) -> Any:
    return {"text": selectors.build_log(selectors.get_environment(name))}
