"""Kill -9 of each process in turn, Postgres and Valkey among them, during a run of the supervised product."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from scripts.stack.layout import REPOSITORY
from scripts.stack.supervision import Supervisor

from .conftest import Stack, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

VICTIMS = ("worker-rollout", "valkey", "worker-train", "postgres", "inference")
STEPS = 2 * len(VICTIMS) + 2
STEP_SECONDS = 240


def manage(stack: Stack, *arguments: str) -> str:
    """A management command against the running stack; its output."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=REPOSITORY,
        env=stack.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.stdout if done.returncode == 0 else ""


def command(stack: Stack, token: str, *words: str) -> str:
    """A command of the command line against the running stack; its output, empty where it failed."""
    port = stack.variables["OPENCOMPOSER_PORT"]
    done = subprocess.run(
        [sys.executable, "-m", "opencomposer", *words],
        cwd=REPOSITORY,
        env=stack.environment(OPENCOMPOSER_URL=f"http://127.0.0.1:{port}", OPENCOMPOSER_TOKEN=token),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.stdout if done.returncode == 0 else ""


def show(stack: Stack, token: str, run: int) -> dict[str, Any]:
    """Facts of the run; empty while the database restarts."""
    text = command(stack, token, "runs", "get", str(run), "--json")
    facts: dict[str, Any] = json.loads(text) if text else {}
    assert facts.get("state") != "failed", facts
    return facts


def test_a_run_survives_the_death_of_each_process(stack: Stack) -> None:
    started = stack.command("up", "--detach")
    assert started.returncode == 0, started.stderr
    assert manage(stack, "importpolicy", str(REPOSITORY / "policies" / "base"), "--name", "base", "--toy")
    assert manage(stack, "build_suites", "--train", "40", "--held-out", "4")
    changes = [
        f"stage.steps={STEPS}",
        "stage.checkpoint.every_steps=2",
        "stage.eval_every=100",
        "stage.eval_tasks=4",
    ]
    sets = [word for change in changes for word in ("--set", change)]
    assert manage(stack, "seed")
    token = manage(stack, "createtoken", "admin", "--scope", "operate").strip()
    created = command(stack, token, "runs", "create", "--preset", "rl-smoke", *sets, "--start", "--json")
    run = json.loads(created)[0]["id"]

    supervisor = Supervisor(stack.layout)
    for number, victim in enumerate(VICTIMS):
        step = 2 * number + 1
        wait_until(
            lambda step=step: show(stack, token, run).get("step", 0) >= step, seconds=STEP_SECONDS, what=f"step {step}"
        )
        pid = supervisor.state(victim).pid
        os.kill(pid, signal.SIGKILL)

        def back(victim: str = victim, pid: int = pid) -> bool:
            state = supervisor.state(victim)
            return state.state == "RUNNING" and state.pid != pid

        wait_until(back, seconds=60, what=f"{victim} running again")

    wait_until(
        lambda: show(stack, token, run).get("state") == "finished", seconds=3 * STEP_SECONDS, what="the end of the run"
    )
    # A worker drops what was still being played when the run ended.
    wait_until(
        lambda: show(stack, token, run).get("rollouts", {}).get("open") == 0, seconds=60, what="no rollout is open"
    )
    facts = show(stack, token, run)
    counts = facts["rollouts"]
    assert facts["step"] == STEPS
    assert counts["open"] == 0
    assert counts["dispatched"] == counts["passed"] + counts["failed"] + counts["infra_error"]
    assert counts["dispatched"] >= STEPS * 2 * 4
    exported = command(stack, token, "exports", "create", "metrics", f"run={run}")
    points = [json.loads(line) for line in exported.splitlines()]
    assert [point["step"] for point in points if point["name"] == "reward/mean"] == list(range(1, STEPS + 1))
