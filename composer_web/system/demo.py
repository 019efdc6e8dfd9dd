"""The demo: the whole loop on the shipped toy policy, as runs of the product and nothing beside it.

Everything here goes through the services that the pages use; this module only decides what to start and in which
order, and tells a person at the terminal what happens. Killed at any moment, it goes on where it was: its state is
the rows it made.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from composer_web.accounts.models import Role, User
from composer_web.accounts.services import create_user
from composer_web.core.errors import Conflict
from composer_web.core.queue.outbox import enqueue
from composer_web.env import REPOSITORY, env
from composer_web.evals.models import Evaluation, Phase
from composer_web.policies.services import import_base
from composer_web.rollouts.models import Rollout
from composer_web.runs.models import RUN_FINAL, Run, RunState
from composer_web.runs.services import create_run, resume_run, start_run
from composer_web.tasks.services import build_procedural
from trainer.config import OptimizerConfig, RLConfig, RunConfig
from trainer.toy.preset import toy_midtrain, toy_rl, toy_sft

USER = "demo"
NAMES = ("Demo 1/3 mid-training", "Demo 2/3 SFT", "Demo 3/3 RL")
SPARE_PROMPTS = 1.05
"""Prompts built per prompt needed: replacements for groups dropped after infrastructure failures."""

POLL_SECONDS = 1.0
RUN_DEADLINE_SECONDS = 3600.0

POLICY_TEXT = (
    "A toy of about a million parameters, trained on one-function repositories so that it uses tool calls and fixes "
    "some bugs. It shows that the machinery learns; it is good for nothing else."
)


class DemoFailed(Exception):
    """The demo cannot go on. The message says where to look."""


@dataclass(slots=True)
class Phases:
    """Wall seconds by phase of this invocation."""

    seconds: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    def done(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._started, 1)
        self._started = now


def say(text: str) -> None:
    """To the terminal; standard output is kept for the result line."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def run_demo(*, new: bool = False, seed: int = 0) -> dict[str, Any]:
    """Make or continue the demo's three runs and wait for their end. Raises DemoFailed, UserError."""
    phases = Phases()
    _login()
    import_base(path=REPOSITORY / "policies" / "base", name="base", description=POLICY_TEXT, toy=True)
    midtrain, sft, rl = _configs(seed)
    _suites(rl)
    enqueue("repositories.build_packages", {}, queue="build", key="demo:packages")
    phases.done("prepare")
    _finish(_run(midtrain, parent=None, new=new), phases, "midtrain")
    first = _latest(midtrain.name)
    _finish(_run(sft, parent=first, new=new), phases, "sft")
    last = _run(rl, parent=_latest(sft.name), new=new)
    _finish(last, phases, "rl")
    _await_evaluations(last)
    phases.done("evals")
    return _result(last, seed, phases)


def _configs(seed: int) -> tuple[RunConfig, RunConfig, RunConfig]:
    """A short visible stretch of mid-training and SFT at a gentle rate, then RL in full."""
    gentle = OptimizerConfig(name="adamw", learning_rate=1e-4, warmup_steps=5)
    midtrain = RunConfig(name=NAMES[0], seed=seed, policy="base", stage=toy_midtrain(steps=40, optimizer=gentle))
    sft = RunConfig(
        name=NAMES[1],
        seed=seed,
        policy="base",
        stage=toy_sft(steps=40, episodes=300, observation_weight=0.05, optimizer=gentle),
    )
    rl = RunConfig(name=NAMES[2], seed=seed, policy="base", stage=toy_rl())
    return midtrain, sft, rl


def _login() -> None:
    """A person who may operate, with a password kept in the data folder so that it can be shown again."""
    path = env().data / "run" / "demo-password"
    user = User.objects.filter(username=USER).first()
    if user is None or not path.is_file():
        password = secrets.token_urlsafe(12)
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(password)
        if user is None:
            create_user(username=USER, password=password, role=Role.ADMIN)
        else:
            user.set_password(password)
            user.save(update_fields=["password"])
    say(f"log in at http://{env().host}:{env().port}/ as {USER} with password {path.read_text()}")


def _suites(rl: RunConfig) -> None:
    """Generate the suites. Each task's controls run in the rollout worker just before its first use."""
    stage = rl.stage
    assert isinstance(stage, RLConfig)
    prompts = int(stage.steps * stage.groups_per_step * SPARE_PROMPTS)
    try:
        build_procedural(n_train=prompts, n_held_out=stage.eval_tasks)
    except Conflict as error:
        raise DemoFailed(
            f"{error}. The task generator has changed since this data folder was made; "
            "set OPENCOMPOSER_DATA to a new folder to run the demo anew beside it"
        ) from error


def _latest(name: str) -> Run | None:
    return Run.objects.filter(name=name).order_by("-pk").first()


def _run(config: RunConfig, *, parent: Run | None, new: bool) -> Run:
    """The demo's run of this stage: the newest one goes on, unless a new one is asked for or its parent is newer."""
    found = _latest(config.name)
    stale = found is not None and parent is not None and found.parent_id != parent.pk
    if found is None or stale or (new and found.state in RUN_FINAL):
        start = f"{parent.policy_out.name}" if parent is not None and parent.policy_out is not None else config.policy
        found = create_run(config=config.model_copy(update={"policy": start}), parent=parent)
    if found.state == RunState.DRAFT:
        return start_run(run=found)
    if found.state in (RunState.PAUSED, RunState.PAUSING, RunState.FAILED):
        return resume_run(run=found)
    return found


def _finish(run: Run, phases: Phases, phase: str) -> None:
    """Wait until `run` has ended, telling its progress. Raises DemoFailed."""
    deadline = time.monotonic() + RUN_DEADLINE_SECONDS
    shown = ""
    while True:
        run.refresh_from_db()
        line = _progress(run)
        if line != shown:
            say(line)
            shown = line
        if run.state == RunState.FINISHED:
            break
        if run.state in RUN_FINAL or run.state == RunState.PAUSED:
            raise DemoFailed(f"run {run.pk} ({run.name}) is {run.state}: {run.failure or 'by somebody at the page'}")
        if time.monotonic() > deadline:
            raise DemoFailed(
                f"run {run.pk} ({run.name}) did not end within {RUN_DEADLINE_SECONDS:g} s; see its page and `make status`"
            )
        time.sleep(POLL_SECONDS)
    phases.done(phase)


def _progress(run: Run) -> str:
    latest = run.latest
    parts = [f"{run.name}: {run.state}", f"step {run.step}/{run.steps_total}"]
    for label, name, form in (
        ("loss", "loss/train", ".3f"),
        ("reward", "reward/mean", ".2f"),
        ("best of K", "reward/best_of_k", ".2f"),
    ):
        if name in latest:
            parts.append(f"{label} {latest[name]:{form}}")
    return ", ".join(parts) + (f" ({run.phase})" if run.phase and run.step == 0 else "")


def _await_evaluations(run: Run) -> None:
    deadline = time.monotonic() + RUN_DEADLINE_SECONDS
    while Evaluation.objects.filter(run=run, state__in=("pending", "running")).exists():
        if time.monotonic() > deadline:
            raise DemoFailed(f"evaluations of run {run.pk} did not end; see the evaluations page and `make status`")
        time.sleep(POLL_SECONDS)


def _result(run: Run, seed: int, phases: Phases) -> dict[str, Any]:
    """The demo's figures, all read back from the rows."""
    results = {e.phase: e.results for e in Evaluation.objects.filter(run=run, state="finished")}
    before, after = results.get(Phase.BEFORE, {}), results.get(Phase.AFTER, {})
    rollouts = Rollout.objects.filter(group__run=run)
    verdicts = Counter(rollouts.values_list("verdict", flat=True))
    worst = run.metrics.filter(key__name="staleness/max").order_by("-value").values_list("value", flat=True).first()
    mean = list(run.metrics.filter(key__name="staleness/mean").values_list("value", flat=True))
    return {
        "demo": "ok" if before and after else "no evaluation",
        "run": run.pk,
        "seed": seed,
        "temperature": run.config["stage"]["sampling"]["temperature"],
        "pass1_before": before.get("pass1"),
        "pass1_after": after.get("pass1"),
        "best8_before": before.get("best"),
        "best8_after": after.get("best"),
        "dispatched": rollouts.count(),
        "verdicts": {kind or "open": count for kind, count in sorted(verdicts.items())},
        "steps": run.step,
        "staleness_max": worst,
        "staleness_mean": round(sum(mean) / len(mean), 3) if mean else None,
        "recoveries": run.recoveries,
        "seconds": phases.seconds,
        "finished_at": timezone.localtime(run.finished_at).isoformat(timespec="seconds") if run.finished_at else None,
    }


def sample_data() -> None:
    """The demo's policy and suites without its runs, for an installation that is still empty. Raises DemoFailed, UserError."""
    import_base(path=REPOSITORY / "policies" / "base", name="base", description=POLICY_TEXT, toy=True)
    _suites(_configs(0)[2])
