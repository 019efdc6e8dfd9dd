"""The Docker engine of this machine through its SDK: blocking calls, with errors of the contract."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from sandbox.backends.base import SandboxError, SandboxLost
from sandbox.backends.docker import bundle, frames, remedies
from sandbox.backends.namespaces.inside import protocol

CALL_SECONDS = 180.0
JOB_SECONDS = 600.0
REMOVE_SECONDS = 60.0
THREADS = 16
MIN_API = (1, 41)

P = ParamSpec("P")
T = TypeVar("T")
_attached: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child must not keep containers alive whose host has died."""
    for end in list(_attached):
        end.close()


os.register_at_fork(after_in_child=_close_in_child)


class JobFailed(SandboxError):
    """A container that ran for one request could not do it. `kind` is "large" when a copy was too large."""

    def __init__(self, text: str, kind: str | None) -> None:
        super().__init__(text)
        self.kind = kind


class NameTaken(SandboxError):
    """The engine has a container of that name."""


class Engine:
    """One connection pool. Safe to share between threads; a forked process makes its own."""

    def __init__(self, url: str) -> None:
        """Raises SandboxUnavailable."""
        try:
            import docker
            import requests
        except ImportError as error:
            raise remedies.no_library(error) from None
        remedies.reach(url)
        self._url, self._errors, self._requests = url, docker.errors, requests.exceptions
        self.owner = os.getpid()
        with self._explained("connect"):
            self._api: Any = docker.APIClient(base_url=url, version="auto", timeout=CALL_SECONDS)
        version: str = self._api.api_version
        if tuple(int(part) for part in version.split(".")) < MIN_API:
            raise remedies.too_old(version)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")

    async def do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one of the blocking methods in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(function, *args, **kwargs))

    def info(self) -> dict[str, Any]:
        with self._explained("describe the engine"):
            return self._api.info()

    def image(self, name: str) -> dict[str, Any]:
        """Configuration of an image. Raises SandboxUnavailable when there is none."""
        with self._explained(f"use image {name}"):
            try:
                return self._api.inspect_image(name)["Config"] or {}
            except self._errors.ImageNotFound:
                raise remedies.no_image(name) from None

    def has_image(self, name: str) -> bool:
        with self._explained(f"look for image {name}"):
            return bool(self._api.images(name=name))

    def import_image(self, name: str, archive: bytes) -> None:
        repository, _, tag = name.partition(":")
        with self._explained(f"import image {name}"):
            self._api.import_image_from_data(archive, repository=repository, tag=tag)

    def create(self, config: dict[str, Any], name: str | None = None) -> str:
        """Id of the new container. Raises NameTaken."""
        with self._explained("create a container"):
            try:
                return self._api.create_container_from_config(config, name)["Id"]
            except self._errors.APIError as error:
                if name and error.status_code == 409:
                    raise NameTaken(name) from None
                raise

    def pid(self, container: str) -> int:
        """Process id of a running container's first process on the engine's machine."""
        with self._explained("inspect a container"):
            return int(self._api.inspect_container(container)["State"]["Pid"])

    def volume_paths(self, container: str) -> dict[str, str]:
        """Where the container's volumes are on the engine's machine, by their place inside."""
        with self._explained("inspect a container"):
            mounts = self._api.inspect_container(container)["Mounts"]
        return {mount["Destination"]: mount["Source"] for mount in mounts}

    def create_volume(self, name: str, labels: dict[str, str]) -> str:
        with self._explained("create a volume"):
            return self._api.create_volume(name, labels=labels)["Mountpoint"]

    def remove_volume(self, name: str) -> bool:
        """False while a container uses it."""
        with self._explained("remove a volume"):
            try:
                self._api.remove_volume(name)
            except self._errors.NotFound:
                return True
            except self._errors.APIError as error:
                if error.status_code != 409:
                    raise
                return False
        return True

    def attach(self, container: str) -> socket.socket:
        """The container's standard streams: what is written goes in, what comes out is framed (`frames.py`)."""
        with self._explained("attach to a container"):
            params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            attached = self._api.attach_socket(container, params=params)
            end = socket.socket(fileno=os.dup(attached.fileno()))
            attached._response.close()
            attached.close()
        _attached.add(end)
        return end

    def start(self, container: str) -> None:
        with self._explained("start a container"):
            self._api.start(container)

    def remove(self, container: str) -> None:
        """Kill it and remove it with its own volumes; returns when it is gone. Raises SandboxError after a deadline."""
        end = time.monotonic() + REMOVE_SECONDS
        while time.monotonic() < end:
            with self._explained("remove a container"):
                try:
                    self._api.remove_container(container, force=True, v=True)
                    return
                except self._errors.NotFound:
                    return
                except self._errors.APIError as error:
                    if error.status_code != 409:  # somebody else, the engine itself say, removes it now
                        raise
            time.sleep(0.02)
        raise SandboxError(f"container {container[:12]} was not removed within {REMOVE_SECONDS:.0f} s")

    def labelled(self, label: str, value: str) -> tuple[dict[str, dict], dict[str, dict]]:
        """Labels of (containers by id, volumes by name) that carry `label` = `value`."""
        wanted = {"label": f"{label}={value}"}
        with self._explained("list containers and volumes"):
            containers = self._api.containers(all=True, filters=wanted)
            volumes = self._api.volumes(filters=wanted)["Volumes"] or []
        return {found["Id"]: found["Labels"] for found in containers}, {
            found["Name"]: found["Labels"] for found in volumes
        }

    def job(self, config: dict[str, Any], request: dict) -> None:
        """Run a container for one request to its end. Raises SandboxError with what it said when that failed."""
        container = self.create(config)
        try:
            with self.attach(container) as end:
                end.settimeout(JOB_SECONDS)
                self.start(container)
                end.sendall(bundle.message(request))
                answer, said = _first_frame(end)
            if answer.get("op") != "done":
                raise JobFailed(str(answer.get("text") or said or f"{request['role']}: it ended"), answer.get("kind"))
        except OSError as error:
            raise SandboxLost(f"{request['role']}: {error}") from None
        finally:
            self.remove(container)

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        self._api.close()

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self._errors.APIError as error:
            raise remedies.refusal(error.status_code, error.explanation or str(error), doing) from None
        except (self._requests.Timeout, TimeoutError):
            raise SandboxLost(f"cannot {doing}: the engine did not answer within {CALL_SECONDS:.0f} s") from None
        except (self._requests.RequestException, self._errors.DockerException, OSError) as error:
            remedies.reach(self._url)
            raise SandboxLost(f"cannot {doing}: {error}") from None


def _first_frame(end: socket.socket) -> tuple[dict, str]:
    """The first frame on standard output (empty at the end of the stream), and what standard error said."""
    streams, decoder, said = frames.Streams(), protocol.Decoder(), b""
    while data := end.recv(1 << 16):
        for stream, payload in streams.feed(data):
            if stream == frames.STDERR:
                said += payload
                continue
            for header, _ in decoder.feed(payload):
                return header, ""
    return {}, said.decode(errors="replace").strip()[-2000:]
