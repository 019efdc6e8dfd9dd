"""The whole product under its supervisor: up, every process killed once and back, down without leftovers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys

import pytest

from scripts.stack import processes
from scripts.stack.layout import REPOSITORY
from scripts.stack.supervision import State, Supervisor

from .conftest import Stack, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PRODUCT = ["web", "worker-control", "worker-io", "worker-rollout", "worker-build", "worker-train", "beat", "inference"]


def health(stack: Stack) -> dict[str, bool]:
    done = subprocess.run(
        [sys.executable, "manage.py", "health", "--json"],
        cwd=REPOSITORY,
        env=stack.environment(),  # nothing but the data folder: the command finds the rest in run/env
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return {check["name"]: check["ok"] for check in json.loads(done.stdout)} if done.stdout.startswith("[") else {}


def all_well(stack: Stack) -> bool:
    found = health(stack)
    return bool(found) and all(found.values())


def answers(stack: Stack) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", int(stack.variables["OPENCOMPOSER_PORT"]), timeout=30)
    try:
        connection.request("GET", "/login/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_every_process_comes_back_after_kill_9_and_down_leaves_none(stack: Stack) -> None:
    started = stack.command("up", "--detach", OPENCOMPOSER_PASSWORD="first-start-1")
    assert started.returncode == 0, started.stderr
    assert "user admin with password first-start-1" in started.stderr
    assert answers(stack)
    wait_until(lambda: all_well(stack), seconds=240, what="a healthy product")

    supervisor = Supervisor(stack.layout)
    before = {state.name: state for state in supervisor.states()}
    assert set(before) == {*PRODUCT, "postgres", "valkey"}
    for state in before.values():
        os.kill(state.pid, signal.SIGKILL)

    def back(state: State) -> bool:
        return state.state == "RUNNING" and state.pid != before[state.name].pid

    wait_until(lambda: all(back(state) for state in supervisor.states()), seconds=180, what="all programs")
    wait_until(lambda: answers(stack), seconds=240, what="the pages")
    wait_until(lambda: all_well(stack), seconds=240, what="a healthy product after the kills")

    pids = stack.processes()
    assert stack.command("down").returncode == 0
    assert [pid for pid in pids if processes.alive(pid)] == []

    again = stack.command("up", "--detach")
    assert again.returncode == 0, again.stderr
    assert "with password" not in again.stderr  # the people of the first start are still there


def test_a_web_port_taken_by_another_server_is_left_to_it(stack: Stack) -> None:
    """The default port gives way to the next free one, and the page that answers there is ours."""
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", "8800", "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as other:  # when something else holds 8800 already, this ends at once and the test holds all the same
        try:
            assert stack.command("up", "--detach").returncode == 0
            assert stack.variables["OPENCOMPOSER_PORT"] != "8800"
            assert answers(stack)
        finally:
            other.kill()
