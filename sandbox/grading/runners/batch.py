# Runs inside a sandbox, as `python -P -s -B -c <this text>`: several test runs in turn, each in a process forked from this
# one, which has loaded pytest. Where that already loaded something of the checkout (one of pytest's own dependencies, a
# plugin), each run starts an interpreter anew instead: it would test what was there before its files were written.
# For measuring only: a verdict over somebody's work is always given by a run of its own in a sandbox of its own.
# mypy: ignore-errors
import importlib
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time

import pytest  # noqa: F401  what takes longest in a run, done once


def main():
    request = json.load(sys.stdin)
    fd = int(os.environ["RESULT_FD"])
    warm = not loaded_from_checkout()
    for number, run in enumerate(request["runs"]):
        for path, text in run["files"].items():
            with open(path, "wb") as file:
                file.write(text.encode())
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_CPU, (run["seconds"], run["seconds"]))
                if not warm:
                    start_anew(request["runner"], run["request"])
                sys.stdin = io.StringIO(run["request"])
                importlib.invalidate_caches()
                exec(compile(request["runner"], "runner", "exec"), {"__name__": "__main__"})  # noqa: S102
            finally:
                os._exit(70)
        status = wait(child, run["wall"])
        os.write(fd, (request["word"] + json.dumps({"run": number, "status": status}) + "\n").encode())
    os._exit(0)


def loaded_from_checkout():
    here = os.path.realpath(os.getcwd()) + os.sep
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return any(file and os.path.realpath(file).startswith(here) for file in files)


def start_anew(runner, text):
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        os.dup2(file.fileno(), 0)
    os.execv(sys.executable, [sys.executable, "-P", "-s", "-B", "-c", runner])  # noqa: S606


def wait(child, wall):
    """The child's exit code, negative for a signal; all that it started goes with it."""
    deadline = time.monotonic() + wall
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        late = time.monotonic() > deadline
        if pid or late:
            try:
                os.killpg(child, signal.SIGKILL)
            except ProcessLookupError:
                pass  # nothing of it is left
            if late and not pid:
                os.waitpid(child, 0)
                return None
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)


main()
