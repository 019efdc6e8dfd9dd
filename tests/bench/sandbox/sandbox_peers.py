"""What others take on the same machine: a plain bash, namespaces by `unshare`, containers by an engine."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from typing import Literal

Docker = Literal["without", "ask", "start"]
NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts")
DOCKER_RUNS = 15
LIMITS = ("--memory=1g", "--pids-limit=256", "--cpus=1", "--network=none")


def milliseconds(command: list[str], count: int) -> float | None:
    """Median of `count` runs, None where the command does not work."""
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode != 0:
        return None
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(command, capture_output=True)
        taken.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(taken), 3)


def measure(count: int, docker: Docker) -> tuple[dict[str, float], dict[str, str]]:
    """(medians by name, why something was left out)."""
    found = {
        "plain_bash_ms_p50": milliseconds(["bash", "-c", "echo hi"], count),
        "unshare_bash_ms_p50": milliseconds([*NAMESPACES, "bash", "-c", "echo hi"], count),
    }
    left_out = {}
    with _engine(docker) as missing:
        if missing:
            left_out["docker"] = f"left out: {missing}"
        else:
            found |= _docker()
    return {name: value for name, value in found.items() if value is not None}, left_out


@contextlib.contextmanager
def _engine(docker: Docker) -> Iterator[str]:
    """Why no engine is asked, empty where one answers; DOCKER_HOST leads to it."""
    if docker == "without":
        yield "containers do not take real-time processes"
        return
    if shutil.which("docker") is None:
        yield "no docker command on this machine"
        return
    if subprocess.run(["docker", "version"], capture_output=True).returncode == 0:
        yield ""
        return
    if docker == "ask":
        yield "no container engine answers; --docker starts one where root may"
        return
    from tests.docker_engine import NoEngine, engine

    try:
        with engine() as url:
            os.environ["DOCKER_HOST"] = url
            yield ""
    except NoEngine as error:
        yield str(error)


def _docker() -> dict[str, float | None]:
    """`docker run` and `docker exec` of a bash with the same limits, from the image that our own backend uses."""
    from sandbox.backends.docker import image
    from sandbox.backends.docker.engine import Engine
    from sandbox.backends.docker.settings import DockerSettings

    settings = DockerSettings()
    engine = Engine(settings.socket_url())
    made = image.ready(engine, settings)
    engine.close()
    folders = [option for folder in made.folders for option in ("--volume", f"{folder}:{folder}:ro")]
    name = f"opencomposer-bench-{os.getpid()}"
    start = ["docker", "run", "--rm", *LIMITS, *folders]
    run = [*start, made.name, "bash", "-c", "echo hi"]
    subprocess.run([*start, "--detach", "--name", name, made.name, "sleep", "600"], check=True, capture_output=True)
    try:
        return {
            "docker_run_ms_p50": milliseconds(run, DOCKER_RUNS),
            "docker_exec_ms_p50": milliseconds(["docker", "exec", name, "bash", "-c", "true"], DOCKER_RUNS),
        }
    finally:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=True)
