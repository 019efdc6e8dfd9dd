"""The asyncio loop of a rollout worker process: all episodes of all its groups run in it.

Celery's threads only wait for their group; the sandbox backend, the HTTP connections and the bound on sandboxes
are shared by the whole process and belong to this one loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from composer_web.core import inference
from composer_web.env import env
from composer_web.rollouts.worker.llm_judge import provide_grades
from composer_web.rollouts.worker.open_turns import OpenTurns
from trainer.stamps import TOKENIZER, Stamp, stamp

if TYPE_CHECKING:
    from sandbox.backends.base import Backend
    from trainer.inference.client import HttpInferenceClient
    from trainer.rollouts.episode import Renderer

T = TypeVar("T")


def snapshots_folder() -> Path:
    """Folder of turn snapshots, shared by all workers."""
    return env().data / "snapshots"


class EpisodeLoop:
    """A running event loop in a daemon thread, with its resources. Create it through `episode_loop`."""

    def __init__(self) -> None:
        from sandbox.backends.capacity import sandboxes_at_once
        from sandbox.backends.choice import default_backend
        from sandbox.backends.snapshots import SnapshotStore
        from sandbox.tasks.environments import EnvironmentStore

        provide_grades()
        self.backend: Backend = default_backend()
        self.environments = EnvironmentStore(env().data / "environments")
        self.snapshots = SnapshotStore(snapshots_folder())
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="episodes", daemon=True).start()
        self.slots = asyncio.Semaphore(sandboxes_at_once())

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop. Cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def client(self) -> HttpInferenceClient:
        """The process's HTTP client. Call it on the loop."""
        if not hasattr(self, "_client"):
            self._client = inference.client()
        return self._client

    async def open_turns(self) -> OpenTurns:
        """The process's unfinished turns. Call it on the loop."""
        if not hasattr(self, "_open_turns"):
            self._open_turns = OpenTurns(await self.client())
        return self._open_turns


current_loop: EpisodeLoop | None = None
_one_lock = threading.Lock()


def episode_loop() -> EpisodeLoop:
    """The loop of this process, created on first use. Thread-safe."""
    global current_loop
    with _one_lock:
        if current_loop is None:
            current_loop = EpisodeLoop()
        return current_loop


@dataclass(frozen=True, slots=True)
class _Loaded:
    files: Stamp
    renderer: Renderer
    problem: str
    """Reason why the template cannot drive episodes. Empty if it can."""


_renderers: dict[Path, _Loaded] = {}
_renderers_lock = threading.Lock()


def renderer(folder: Path) -> Renderer:
    """Chat renderer of a policy folder, cached per process and content. Raises PolicyUnreadable."""
    return _loaded(folder).renderer


def template_problem(folder: Path) -> str:
    """Reason why the folder's chat template cannot drive episodes. Empty if it can. Raises PolicyUnreadable."""
    return _loaded(folder).problem


def _loaded(folder: Path) -> _Loaded:
    with _renderers_lock:
        files = stamp(folder, TOKENIZER)
        known = _renderers.get(folder)
        if known is None or known.files != files:
            from trainer.policy import load_tokenizer, make_renderer
            from trainer.policy.round_trip import problem_of

            made = make_renderer(load_tokenizer(folder))
            known = _renderers[folder] = _Loaded(files, made, problem_of(made))
        return known
