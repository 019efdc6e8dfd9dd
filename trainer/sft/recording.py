"""Recording scripted expert episodes in real sandboxes, once, into a cache that SFT reads.

The file name carries everything that the episodes depend on, so a changed expert or count records anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sandbox.backends.base import Backend
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session, schema_hash_of
from sandbox.harness.types import ToolErrorKind, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.procedural import expert as procedural_expert
from sandbox.tasks.procedural import generate
from sandbox.tasks.procedural.expert import Habits, run_expert
from trainer.rollouts.record import opening_messages
from trainer.sft.expert_episodes import EpisodeTurn, ExpertEpisode, read_episodes, write_episodes

FIRST_TASK = 100_000
"""Expert tasks have seeds from here on, away from those of the suites that reinforcement learning uses."""
EPISODE_SECONDS = 60.0
ATTEMPTS = 4
"""Recordings of one episode before the machine is called too busy."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Which episodes to record: `count` training tasks from `FIRST_TASK + seed * 100_000` on."""

    count: int
    seed: int = 0
    habits: Habits = field(default_factory=Habits)
    profile: str = "toy"

    def facts(self) -> dict[str, Any]:
        """Everything that the episodes depend on: the expert, the tools, and the generator's tasks by a sample."""
        sample = [generate(self.first + index, "train").bundle_hash for index in range(8)]
        return {
            **asdict(self),
            "expert": hashlib.sha256(Path(procedural_expert.__file__).read_bytes()).hexdigest(),
            "tools": schema_hash_of(get_profile(self.profile)),
            "tasks": hashlib.sha256("".join(sample).encode()).hexdigest(),
        }

    @property
    def first(self) -> int:
        """Seed of the first task."""
        return FIRST_TASK + self.seed * 100_000

    @property
    def file_name(self) -> str:
        digest = hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()
        return f"expert-{self.count}-{digest[:16]}.jsonl"


async def expert_episodes(
    recording: Recording, *, cache: Path, backend: Backend, environments: EnvironmentStore, concurrency: int = 4
) -> list[ExpertEpisode]:
    """The episodes from `cache`, recorded first if they are not there.

    Raises SandboxError (the machine cannot run them), ValueError (a damaged cache file), TimeoutError.
    """
    path = cache / recording.file_name
    if path.is_file():
        return read_episodes(path)
    episodes = await record(recording, backend=backend, environments=environments, concurrency=concurrency)
    write_episodes(path, episodes)
    return episodes


async def record(
    recording: Recording, *, backend: Backend, environments: EnvironmentStore, concurrency: int = 4
) -> list[ExpertEpisode]:
    """Run the expert on every task, each in its own sandbox; the result does not depend on timing.

    Raises SandboxError, TimeoutError (the machine is too busy).
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(seed: int) -> ExpertEpisode:
        async with slots:
            for _ in range(ATTEMPTS):
                episode = await _episode(seed, recording, backend, environments)
                if not any(_timed_out(result) for turn in episode.turns for result in turn.results):
                    return episode
        raise TimeoutError(
            f"{episode.task_id}: a command timed out {ATTEMPTS} times; the machine is too busy to record"
        )

    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one(recording.first + index)) for index in range(recording.count)]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in running]


async def _episode(seed: int, recording: Recording, backend: Backend, environments: EnvironmentStore) -> ExpertEpisode:
    async with asyncio.timeout(EPISODE_SECONDS):
        task = generate(seed, "train")
        async with await backend.start(environments.spec(task.environment)) as sandbox:
            session = Session(sandbox, get_profile(recording.profile))
            turns = await run_expert(session, task, random.Random(f"expert:{seed}"), recording.habits)
    return ExpertEpisode(
        task_id=task.id,
        bundle_hash=task.bundle_hash,
        profile=recording.profile,
        messages=tuple({"role": m["role"], "content": m["content"]} for m in opening_messages(task)),
        turns=tuple(EpisodeTurn(calls=(turn.call,), results=(turn.result,)) for turn in turns),
    )


def _timed_out(result: ToolResult) -> bool:
    """The family's tests take milliseconds: a timeout says that the machine was busy, not that the code is slow."""
    return result.error is not None and result.error.kind is ToolErrorKind.TIMEOUT
