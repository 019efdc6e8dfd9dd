"""Source distributions from the package index, without running any of their code: no pip, no build backend.

Requests go through the same registry proxy as those of sandboxes, so its policy, limits and digests apply.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import os
import platform
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import Version

from sandbox.errors import PackageError, PackageUnavailable
from sandbox.network import AuditRecord, RegistryPolicy, Upstreams
from sandbox.network.gateway import RegistryGateway
from sandbox.repositories.archives import MAX_PACKED_BYTES
from sandbox.repositories.pins import Pin

SECONDS = 300.0
PYTHON = platform.python_version()
"""Sandboxes have the interpreter of this machine."""
JSON = "application/vnd.pypi.simple.v1+json"


@asynccontextmanager
async def _client(upstreams: Upstreams) -> AsyncIterator[httpx.AsyncClient]:
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        port = listener.getsockname()[1]
        egress = await RegistryGateway(RegistryPolicy(), upstreams, _unheard, port=port).serve("source", listener)
    except BaseException:
        listener.close()
        raise
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=SECONDS, trust_env=False, follow_redirects=False
        ) as client:
            yield client
    finally:
        await egress.close()


def _unheard(record: AuditRecord) -> None:
    """The control plane's own questions need no audit."""


async def newest(name: str, upstreams: Upstreams, *, version: str = "", python: str = PYTHON) -> Pin:
    """The pin of a package's newest (or the named) source distribution: as any installer would, of the newest release
    that is for this `python`, where there is one. Raises PackageError, PackageUnavailable."""
    async with _client(upstreams) as client:
        found = [entry for entry in await _page(client, name) if not version or entry[0] == Version(version)]
    found = [entry for entry in found if _suits(entry[1].get("requires-python"), python)] or found
    if not found:
        what = f"{name} {version}".strip()
        raise PackageError(f"{what}: the index has no source distribution of it", remedy="Take its git repository")
    plain = [entry for entry in found if not entry[0].is_prerelease] or found
    best, file = max(plain, key=lambda entry: (entry[0], entry[1]["filename"].endswith(".tar.gz")))
    return Pin(canonicalize_name(name), str(best), (file["hashes"]["sha256"],))


async def fetch(pin: Pin, cache: Path, upstreams: Upstreams) -> Path:
    """The pinned source distribution, in `cache`. Raises PackageError (absent, another hash), PackageUnavailable."""
    for digest in pin.sha256:
        for ending in (".tar.gz", ".zip"):
            if (kept := cache / f"{pin.name}-{pin.version}-{digest[:16]}{ending}").is_file():
                return kept
    async with _client(upstreams) as client:
        entries = [file for _, file in await _page(client, pin.name) if file["hashes"]["sha256"] in pin.sha256]
        if not entries:
            raise PackageError(
                f"{pin.name} {pin.version}: the index has no source distribution with the pinned hash",
                remedy="Pin another version",
            )
        file = entries[0]
        if (file.get("size") or 0) > MAX_PACKED_BYTES:
            raise PackageError(f"{pin.name} {pin.version} is larger than {MAX_PACKED_BYTES} bytes")
        response = await _get(client, file["url"])
    digest = hashlib.sha256(response.content).hexdigest()
    if digest not in pin.sha256:
        raise PackageError(f"{pin.name} {pin.version}: what the index serves does not have the pinned hash")
    cache.mkdir(parents=True, exist_ok=True)
    ending = ".zip" if file["filename"].endswith(".zip") else ".tar.gz"
    target = cache / f"{pin.name}-{pin.version}-{digest[:16]}{ending}"
    draft = target.with_suffix(".part")
    await asyncio.to_thread(draft.write_bytes, response.content)
    if told := file.get("upload-time"):  # its time on disk tells when it was uploaded
        seconds = datetime.datetime.fromisoformat(told).timestamp()
        os.utime(draft, (seconds, seconds))
    draft.replace(target)
    return target


def uploaded(archive: Path) -> datetime.date:
    """When an archive that `fetch` gave was uploaded; the day of its download where the index does not tell."""
    return datetime.datetime.fromtimestamp(archive.stat().st_mtime, datetime.UTC).date()


def _suits(specifier: str | None, python: str) -> bool:
    try:
        return not specifier or SpecifierSet(specifier).contains(python, prereleases=True)
    except InvalidSpecifier:
        return True


async def _page(client: httpx.AsyncClient, name: str) -> list[tuple[Version, dict[str, Any]]]:
    answer = await _get(client, f"/simple/{canonicalize_name(name)}/", accept=JSON)
    found = []
    for file in answer.json()["files"]:
        try:
            _, version = parse_sdist_filename(file["filename"])
        except InvalidSdistFilename:
            continue
        if file.get("hashes", {}).get("sha256") and not file.get("yanked"):
            found.append((version, file))
    return found


async def _get(client: httpx.AsyncClient, url: str, accept: str = "*/*") -> httpx.Response:
    try:
        answer = await client.get(url, headers={"Accept": accept})
    except httpx.HTTPError as error:
        raise PackageUnavailable(f"the package index cannot be reached: {error}", remedy="Try again later") from error
    if answer.status_code == 404:
        raise PackageError(f"the package index has no {url.strip('/').split('/')[-1]}", remedy="Check the spelling")
    if answer.status_code != 200:
        raise PackageUnavailable(f"the package index answers {answer.status_code} {answer.reason_phrase}")
    return answer
