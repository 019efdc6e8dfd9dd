"""Auto-install as a build job: fetch a repository at its pin, install it in sandboxes, store log and record."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from django.db import connections

from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.core.errors import UserError
from composer_web.core.network import safe_http
from composer_web.core.queue import leases
from composer_web.repositories import places, services, tokens
from composer_web.repositories.models import Environment, Repository
from sandbox.backends.base import Backend, SandboxError
from sandbox.errors import TaskError
from sandbox.install.agent.tier import install_by_agent
from sandbox.install.installer import install
from sandbox.install.recipes.errors import InstallCancelled, InstallFailed
from sandbox.install.record import InstallRecord
from sandbox.network import Upstreams, discover
from sandbox.packages.build import BuiltPackage, with_backend
from sandbox.repositories import git, index
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.licences import licence_of
from sandbox.repositories.pins import Pin
from sandbox.repositories.sdist import from_archive
from sandbox.repositories.upload import from_upload
from trainer.inference.installer import EndpointInstaller

T = TypeVar("T")
LOOK_SECONDS = 2.0
"""Between two looks whether somebody asked for the build to stop; also how long log lines wait for company."""
MAX_LOG = 4 << 20


class BuildLog:
    """Collects the lines of a build, and writes them to the database in pieces. Usable from any thread."""

    def __init__(self, environment: Environment) -> None:
        self._environment, self._lock = environment, threading.Lock()
        self._whole: list[str] = []
        self._waiting: list[str] = []
        self._size = 0
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        line = f"[{time.monotonic() - self._began:7.1f} s] {text}\n"
        with self._lock:
            self._size += len(line)
            if self._size <= MAX_LOG:
                self._whole.append(line)
                self._waiting.append(line)

    def flush(self) -> None:
        with self._lock:
            text, self._waiting = "".join(self._waiting), []
        if text:
            services.add_lines(environment=self._environment, text=text)

    @property
    def text(self) -> str:
        with self._lock:
            return "".join(self._whole)


def build(environment: Environment, held: leases.Held, log_key: str) -> str:
    """Build the environment of a repository; returns what became of it."""
    repository = environment.repository
    assert repository is not None
    log = BuildLog(environment)
    record_key = f"builds/{environment.pk}-{held.token}.json.zst"
    try:
        record = with_backend(lambda backend: _watched(environment, held, log, _work(repository, log, backend)))
        artifacts().put_model(record_key, record)
        cause = "" if record.built else f"{record.reason}: {record.problem}"
    except (TaskError, SandboxError, UserError, OSError, ArtifactError) as error:
        log(str(error) if isinstance(error, TaskError) else traceback.format_exc())
        record, cause = None, str(error)
    finally:
        leases.keeper.drop(held)
    artifacts().put(log_key, log.text.encode())
    if record is None or record.built is None:
        services.fail(environment=environment, held=held, cause=cause[:2000], log_key=log_key)
        return f"failed: {cause}"
    detail = describe(record, repository) | {"record": record_key}
    services.finish(
        environment=environment, held=held, digest=record.built.environment.digest, detail=detail, log_key=log_key
    )
    return "ready"


async def _watched(
    environment: Environment, held: leases.Held, log: BuildLog, work: Coroutine[Any, Any, InstallRecord]
) -> InstallRecord:
    """Do the work, write its log as it comes, and stop it when asked to or when the lease is lost."""
    task = asyncio.ensure_future(work)
    while True:
        done, _ = await asyncio.wait({task}, timeout=LOOK_SECONDS)
        await _aside(log.flush)
        if done:
            return task.result()
        asked = await _aside(lambda: _asked(environment))
        if asked or held.lost.is_set():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise InstallCancelled("cancelled: what was done so far is kept" if asked else "another builder has it now")


async def _aside(work: Callable[[], T]) -> T:
    """Database work outside the event loop; the thread's connections go back to the pool with it."""

    def run() -> T:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)


def _asked(environment: Environment) -> bool:
    return Environment.objects.filter(pk=environment.pk, cancel_requested=True).exists()


async def _work(repository: Repository, log: BuildLog, backend: Backend) -> InstallRecord:
    upstreams = (await asyncio.to_thread(discover)).model_copy(update={"kept_files": places.downloads() / "files"})
    checkout, pin = await fetch(repository, upstreams, log)
    licence = licence_of(checkout)
    log(f"fetched {pin}: {len(checkout.files)} files, licence {licence or 'not stated'}")
    for note in checkout.notes:
        log(f"note: {note}")
    notes = list(checkout.notes)
    await _aside(lambda: services.pin_repository(repository=repository, pin=pin, licence=licence, notes=notes))
    provenance = {"kind": repository.kind, "location": repository.location, "pin": pin, "licence": licence}
    return await _installed(checkout, upstreams, log, backend, provenance)


async def _installed(
    checkout: Checkout, upstreams: Upstreams, log: BuildLog, backend: Backend, provenance: dict[str, str]
) -> InstallRecord:
    """By a recipe; where that fails, by the policy that the settings name, if any. Raises TaskError, SandboxError."""
    endpoint, record = places.installer(), None
    try:
        record = await install(
            places.store(), checkout, backend=backend, upstreams=upstreams, log=log, provenance=provenance
        )
        cause = record.problem
    except InstallFailed as error:
        if endpoint is None:
            raise
        cause = str(error)
    if record is not None and (record.built is not None or endpoint is None):
        return record
    assert endpoint is not None
    log(f"no recipe installs it ({cause}): {endpoint.model} goes on")
    async with EndpointInstaller(endpoint) as policy:
        return await install_by_agent(
            places.store(), checkout, policy, backend=backend, upstreams=upstreams, log=log, provenance=provenance
        )


async def fetch(repository: Repository, upstreams: Upstreams, log: BuildLog) -> tuple[Checkout, str]:
    """The checkout at the repository's pin (or what its revision is now) and the pin. Raises TaskError, UserError."""
    log(f"fetching {repository.kind} {repository.location} {repository.pin or repository.revision}".strip())
    if repository.kind in ("git", "path"):
        if repository.kind == "path":
            git.check_path(repository.location, roots=places.git_roots())
        token = tokens.decrypt(repository.token)
        revision = repository.pin or repository.revision
        found = await asyncio.to_thread(
            git.fetch,
            repository.location,
            revision=revision,
            token=token,
            name=repository.name,
            guard=safe_http.repositories(),
        )
        return found.checkout, found.commit
    if repository.kind == "sdist":
        if repository.pin:
            version, _, digest = repository.pin.partition(" sha256:")
            wanted = Pin(repository.location, version, (digest,))
        else:
            wanted = await index.newest(repository.location, upstreams, version=repository.revision)
        archive = await index.fetch(wanted, places.downloads(), upstreams)
        checkout = await asyncio.to_thread(
            from_archive, archive, name=wanted.name, version=wanted.version, uploaded=index.uploaded(archive)
        )
        return checkout, f"{wanted.version} sha256:{wanted.sha256[0]}"
    with tempfile.TemporaryDirectory(prefix="upload-") as folder:
        path = Path(folder) / repository.location
        path.write_bytes(artifacts().get(repository.archive_key))
        checkout = await asyncio.to_thread(from_upload, path, name=repository.name)
    return checkout, checkout.digest


def describe(record: InstallRecord, repository: Repository) -> dict[str, object]:
    """What the page of an environment says about it."""
    built = record.built
    assert built is not None
    return {
        "language": record.language,
        "test_command": record.test_command,
        "bytes": record.image_bytes,
        "version": record.version,
        "tests": len(built.tests),
        "test_seconds": round(sum(built.tests.values()), 2),
        "flaky": len(built.flaky),
        **_sample(record),
        "functions_covered": len(built.covered),
        "source_roots": list(built.source_roots),
        "unseen_goals_met": f"{record.evidence.unseen_met} of {record.evidence.unseen}, three times",
        "attempts": len(record.attempts),
        "install_seconds": record.seconds,
        "pin": repository.pin,
        "licence": repository.licence or "not stated",
        "packages": len(record.packages),
        "leak_scan": "nothing found",
    }


def _sample(record: InstallRecord) -> dict[str, object]:
    """Nothing where the whole suite was run."""
    ran, left_out = record.evidence.collected, record.evidence.left_out
    return {"sample_of_the_suite": f"{ran} of {ran + left_out} tests stand for the whole"} if left_out else {}


def install_record(environment: Environment) -> InstallRecord:
    """What the build of a repository's environment found. Raises UserError, ArtifactError."""
    key = environment.detail.get("record")
    if not isinstance(key, str):
        raise UserError("environment", f"environment {environment.name!r} was not made by an auto-install")
    return artifacts().get_model(key, InstallRecord)


def built_package(environment: Environment) -> BuiltPackage:
    """For task generators. Raises UserError, ArtifactError."""
    built = install_record(environment).built
    if built is None:
        raise UserError("environment", f"environment {environment.name!r} was discarded")
    return built
