"""Translate the engine's refusals into errors of the contract, with a remedy."""

from __future__ import annotations

import errno
import socket

from sandbox.backends.base import SandboxError, SandboxLost, SandboxUnavailable

SCHEME = "unix://"
CONNECT_SECONDS = 5.0


def reach(url: str) -> None:
    """Connect to the engine's socket and leave again. Raises SandboxUnavailable."""
    if not url.startswith(SCHEME):
        raise SandboxUnavailable(
            f"the Docker engine at {url} is not on this machine, and environment layers are folders of this machine: "
            "set DOCKER_HOST (or OPENCOMPOSER_DOCKER_URL) to a unix:// socket"
        )
    path = url.removeprefix(SCHEME)
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(CONNECT_SECONDS)
        try:
            end.connect(path)
        except PermissionError:
            raise SandboxUnavailable(
                f"this user may not use the Docker engine at {path}: add it to the group that owns the socket "
                "(`sudo usermod -aG docker $USER`, then log in anew)"
            ) from None
        except OSError as error:
            absent = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
            raise SandboxUnavailable(
                f"no Docker engine answers at {path} ({'nothing listens there' if absent else error}): start one "
                "(`sudo systemctl start docker`), or name its socket in DOCKER_HOST"
            ) from None


def no_library(error: ImportError) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the Docker backend needs the package `docker` ({error}): pip install 'opencomposer[docker]'"
    )


def no_image(image: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the engine has no image {image!r}: `docker pull {image}`, or correct OPENCOMPOSER_DOCKER_IMAGE"
    )


def no_runtime(runtime: str, known: list[str]) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"the engine knows no runtime {runtime!r} (it has {', '.join(known)}): add it to `runtimes` in "
        "/etc/docker/daemon.json and restart the engine, or correct OPENCOMPOSER_DOCKER_RUNTIME"
    )


def too_old(version: str) -> SandboxUnavailable:
    return SandboxUnavailable(f"the engine speaks API {version}; Docker 20.10 (API 1.41) or later is needed")


def refusal(status: int | None, text: str, doing: str) -> SandboxError:
    """The engine answered with an error while it was asked to do something."""
    if status == 404 and "image" in text.lower():
        return SandboxUnavailable(f"cannot {doing}: {text}")
    if "bind source path does not exist" in text:
        return SandboxUnavailable(
            f"cannot {doing}: {text}. The engine sees other folders than this process: give a worker that runs in a "
            "container its data folder at the same path as on the engine's machine"
        )
    return SandboxLost(f"cannot {doing}: {text}")
