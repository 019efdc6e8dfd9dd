# Runs inside a sandbox, as `python -P -s -B -c <this text>`: several test runs in turn, each in a process forked from this
# one, which has loaded pytest and nothing of the checkout. Before each run its files are written. For measuring only: a
# verdict over somebody's work is always given by a run of its own in a sandbox of its own.
# mypy: ignore-errors
import importlib
import io
import json
import os
import resource
import signal
import sys
import time

import pytest  # noqa: F401  what takes longest in a run, done once


def main():
    request = json.load(sys.stdin)
    fd = int(os.environ["RESULT_FD"])
    for number, run in enumerate(request["runs"]):
        for path, text in run["files"].items():
            with open(path, "wb") as file:
                file.write(text.encode())
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_CPU, (run["seconds"], run["seconds"]))
                sys.stdin = io.StringIO(run["request"])
                importlib.invalidate_caches()
                exec(compile(request["runner"], "runner", "exec"), {"__name__": "__main__"})  # noqa: S102
            finally:
                os._exit(70)
        status = wait(child, run["wall"])
        os.write(fd, (request["word"] + json.dumps({"run": number, "status": status}) + "\n").encode())
    os._exit(0)


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
