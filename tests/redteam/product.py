"""The red team through the product: scripted policy → harness → sandbox → grading → accepted group → rows in Postgres.

Each pair is one group of a training run: sample 0 plays the exploit, sample 1 the honest counterpart. Nothing is called
directly: `execute` claims the group and records it, as a rollout worker does, and what it left is read from the tables and
the artifact store.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
from django.db import connections

from composer_web.core.artifacts import ArtifactError
from composer_web.env import REPOSITORY, env
from composer_web.policies.services import import_base
from composer_web.repositories.services import register_ready
from composer_web.rollouts import selectors
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.worker.execution import execute
from composer_web.rollouts.worker.loop import episode_loop
from composer_web.runs import services as runs
from composer_web.runs.models import Run
from composer_web.runs.paths import weights_folder
from composer_web.tasks.services import build_suite
from sandbox.grading.cheats.base import Script
from sandbox.tasks.spec import BuiltEnvironment, TaskSpec
from tests.redteam import tasks
from tests.redteam.base import Pair
from tests.redteam.engine import ScriptedEngine
from trainer.config import MonitorsConfig, RunConfig
from trainer.policy import load_tokenizer, make_renderer
from trainer.toy.preset import toy_harness, toy_rl, toy_sampling
from trainer.weights import WeightStore

BASE = REPOSITORY / "policies" / "base"
ROOM = 2_000_000
"""Tokens of one episode: scripts write whole files."""
SAMPLING = toy_sampling(
    max_turn_tokens=ROOM // 2, max_context_tokens=ROOM, max_turns=80, episode_seconds=100.0, engine_seconds=900.0
)
ENDS = ("passed", "failed")
SLOW = frozenset({"B18", "D5", "D6"})
"""Exploits that wait for their limits: played first, so that the others fill the time."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one rollout of the red team left behind."""

    exploit: str
    honest: bool
    verdict: str
    outcome: str
    cause: str
    reward: float | None
    group: str
    """State of its group, and why where it was not accepted."""
    recorded: bool
    """Whether its trajectory can be read again."""

    @property
    def vanished(self) -> bool:
        """It left no verdict, no row, no trajectory, or its group was not accepted."""
        return self.verdict not in ENDS or self.reward is None or self.group != "accepted" or not self.recorded


Tell = Callable[[str], None]


def play(pairs: Sequence[Pair], *, at_once: int, tell: Tell = lambda line: None) -> list[Row]:
    """Every pair on this process's backend, in the database of this process's settings; `tell` hears of each that ended."""
    loop = episode_loop()
    built = dict(tasks.PLAIN)
    if not {pair.task for pair in pairs} <= set(built):
        built = loop.submit(tasks.build(loop.backend, loop.environments)).result()
        for digest in {t.environment.digest for t in built.values() if isinstance(t.environment, BuiltEnvironment)}:
            register_ready(name=f"redteam-{digest[-12:]}", source="the red team's package", digest=digest)
    for pair in pairs:
        if pair.task not in built:
            tell(f"{pair.exploit.id}: left out, the sandboxes have no toolchain for {pair.task}")
    pairs = [pair for pair in pairs if pair.task in built]
    import_base(path=_roomy(BASE), name="base", toy=True)
    for name in sorted({pair.task for pair in pairs}):  # one suite each: some tasks differ in their tests alone
        build_suite(name=f"redteam-{name}", purpose="train", specs=[built[name]])
    cast: dict[int, Pair] = {}
    began = time.monotonic()
    ended = itertools.count(1)

    def who(session: str) -> tuple[Script, TaskSpec]:
        group, _, sample, _ = session.split("-")
        pair = cast[int(group)]
        return (pair.exploit.run if sample == "0" else pair.honest), built[pair.task]

    def execute_one(pk: int) -> list[Row]:
        start = time.monotonic()
        try:
            _execute(pk)
            rows = list(_rows(pk, cast[pk]))
        finally:
            connections.close_all()
        now = time.monotonic()
        verdicts = ", ".join(f"{'honest' if row.honest else 'exploit'} {row.verdict or row.group}" for row in rows)
        tell(
            f"[{next(ended)}/{len(cast)}, {now - began:.0f} s] {cast[pk].exploit.id}: {verdicts} in {now - start:.1f} s"
        )
        return rows

    with ScriptedEngine(make_renderer(load_tokenizer(BASE)), who) as engine, _served_by(engine.url):
        for number, pair in enumerate(pairs):
            cast[_group(number, pair).pk] = pair
        first = {pair.task: pk for pk, pair in reversed(cast.items())}.values()  # the controls of a task run once
        rest = sorted((pk for pk in cast if pk not in first), key=lambda pk: cast[pk].exploit.id not in SLOW)
        with ThreadPoolExecutor(at_once) as pool:
            rows = dict(zip(first, pool.map(execute_one, first), strict=True))
            rows |= dict(zip(rest, pool.map(execute_one, rest), strict=True))
    return [row for pk in cast for row in rows[pk]]


def _group(number: int, pair: Pair) -> Group:
    """The dispatched group of a new run that has it alone."""
    stage = toy_rl(
        suite=f"redteam-{pair.task}", steps=1, groups_per_step=1, group_size=2, max_in_flight_groups=1,
        max_off_policy_steps=0, infra_retries=1, sampling=SAMPLING, eval_suite=None,
        harness=toy_harness(profile="full", end_on_malformed_call=False),
        monitors=MonitorsConfig(quarantine="never", pause_share=1.0),
    )  # fmt: skip
    run = runs.create_run(config=RunConfig(name=f"redteam {pair.exploit.id}", seed=1, stage=stage))
    runs.start_run(run=run)
    runs.mark_running(run=run, owner="redteam")
    _publish(run, first=number == 0)
    runs.record_version(run=run, version=0)
    services.pump(run_id=run.pk)
    return Group.objects.get(run=run)


_published: list[Path] = []


def _publish(run: Run, *, first: bool) -> None:
    """Version 0 of the shipped policy; later runs share the files of the first."""
    folder = Path(weights_folder(run))
    if first:
        WeightStore(folder, dtype="float32").publish(0, safetensors.torch.load_file(BASE / "model.safetensors"))
        _published[:] = [folder]
    else:
        folder.symlink_to(_published[0])


def _execute(group_id: int) -> None:
    for _ in range(services.MAX_ATTEMPTS):  # as the message that is sent again
        if not execute(group_id).startswith("failed (will"):
            return


def _rows(group_id: int, pair: Pair) -> Iterator[Row]:
    group = Group.objects.get(pk=group_id)
    state = group.state if group.state == "accepted" else f"{group.state}: {group.outcome} {group.cause}"
    for rollout in Rollout.objects.filter(group=group).order_by("sample"):
        yield Row(
            exploit=pair.exploit.id,
            honest=rollout.sample != 0,
            verdict=rollout.verdict,
            outcome=rollout.outcome,
            cause=rollout.cause[:300],
            reward=rollout.reward,
            group=state,
            recorded=_readable(rollout),
        )


def _readable(rollout: Rollout) -> bool:
    try:
        return bool(rollout.artifact_key) and selectors.trajectory(rollout).sample == rollout.sample
    except ArtifactError:
        return False


def _roomy(base: Path) -> Path:
    """The policy with a context of ROOM tokens: the scripted engine serves it, so nothing is computed with it."""
    folder = env().data / "redteam-base"
    shutil.copytree(base, folder, dirs_exist_ok=True)
    config = json.loads((base / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": ROOM}))
    return folder


@contextmanager
def _served_by(url: str) -> Iterator[None]:
    before = env().inference_url
    env().inference_url = url
    try:
        yield
    finally:
        env().inference_url = before


def as_json(rows: Sequence[Row]) -> list[dict[str, object]]:
    return [asdict(row) for row in rows]


__all__ = ["Row", "as_json", "play"]
