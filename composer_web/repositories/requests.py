"""Requests for a repository, shared by page, API and CLI. Invalid input is rejected before anything is stored."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from composer_web.accounts.models import User
from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.core.errors import UserError
from composer_web.core.network import safe_http
from composer_web.repositories import places, services
from composer_web.repositories.models import Repository
from sandbox.errors import PackageError
from sandbox.repositories import git
from sandbox.repositories.archives import MAX_PACKED_BYTES
from sandbox.repositories.upload import from_upload

T = TypeVar("T")
PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")


def request_repository(
    *, kind: str, location: str, name: str = "", revision: str = "", token: str = "", actor: User | None = None
) -> Repository:
    """A git address, a git repository on this machine, or a package of the index. Raises UserError, Conflict."""
    location, revision, token = location.strip(), revision.strip(), token.strip()
    if kind == "git":
        location = _checked("location", lambda: git.check_url(location, guard=safe_http.repositories()))
    elif kind == "path":
        location = str(_checked("location", lambda: git.check_path(location, roots=places.git_roots())))
    elif kind == "sdist":
        if not PACKAGE.fullmatch(location):
            raise UserError("location", f"{location!r} is not a package's name; write what pip would install")
        location = canonicalize_name(location)
        if revision:
            revision = str(_checked("revision", lambda: _version(revision)))
    else:
        raise UserError("kind", f"kind {kind!r} is not one of git, path, sdist; archives are uploaded")
    if revision and kind != "sdist" and not git.REVISION.fullmatch(revision):
        raise UserError("revision", f"revision {revision!r} is not a branch, tag or commit")
    if token and kind != "git":
        raise UserError("token", "a token belongs to a git address; leave it empty")
    name = name.strip() or re.sub(r"\.git$", "", location.rstrip("/").rsplit("/", 1)[-1])
    return services.add_repository(name=name, kind=kind, location=location, revision=revision, token=token, actor=actor)


def request_archive(*, name: str, filename: str, content: bytes, actor: User | None = None) -> Repository:
    """An uploaded `.tar.gz` or `.zip`. It is read whole before anything is kept. Raises UserError, Conflict."""
    if len(content) > MAX_PACKED_BYTES:
        raise UserError("archive", f"the archive is larger than {MAX_PACKED_BYTES} bytes; leave large data out")
    shown = re.sub(r"[^\w.+-]", "_", Path(filename).name)[-100:] or "archive"
    with tempfile.TemporaryDirectory(prefix="upload-") as folder:
        path = Path(folder) / shown
        path.write_bytes(content)
        _checked("archive", lambda: from_upload(path, name=name or shown))
    name = name.strip() or re.sub(r"\.(tar\.gz|tgz|zip)$", "", shown)
    key = f"repositories/{uuid.uuid4().hex}.zst"
    try:
        artifacts().put(key, content)
    except ArtifactError as error:
        raise UserError("archive", str(error)) from error
    return services.add_repository(name=name, kind="archive", location=shown, archive_key=key, actor=actor)


def _checked(field: str, look: Callable[[], T]) -> T:
    try:
        return look()
    except PackageError as error:
        raise UserError(field, str(error)) from error


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise PackageError(f"{text!r} is not a version", remedy="Write one like 1.2.3") from None
