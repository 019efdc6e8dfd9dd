"""The asynchronous loop in one process: the gate, the group buffer and windowed batches over an event loop of its own.

The control plane does the same over its tables (`composer_web/rollouts/dispatch/`, `runs/training/trainer_bridge.py`); both
ask the same functions. `run_rl` is the trainer's side of either. The trainer's thread waits in `next_batch`; groups
run on the loop's thread, where all state lives.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError as FutureCancelled
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sandbox.grading.verdict.outcomes import Cause, Loss, is_ours
from tests.support.journal import Journal
from trainer.config import RLConfig
from trainer.errors import BatchTimeout, StageError
from trainer.inference.contract import InferenceError
from trainer.orchestrator.admission import admissible_groups
from trainer.orchestrator.batch_scheduler import BatchSchedule, schedule_batch, stale_loss
from trainer.orchestrator.circuit_breaker import WINDOW, breaker_open
from trainer.orchestrator.concurrency import EngineLoad, next_limit
from trainer.orchestrator.validation import check_group
from trainer.rollouts.group import GroupResult
from trainer.router_replay.validate import PolicyShape
from trainer.types import TrainGroup

ATTEMPTS = 3
"""Times that a whole group is tried before it is dropped and its prompt replaced by the next."""
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """One try of a group."""

    prompt: int
    version: int
    """Policy version at dispatch."""
    attempt: int


Play = Callable[[Ticket], Awaitable[GroupResult]]


class LocalSource:
    """A `GroupSource` that makes its groups itself. Use it as a context manager: leaving it stops what runs."""

    def __init__(
        self,
        *,
        config: RLConfig,
        journal: Journal,
        play: Play,
        published: Callable[[], int],
        shape: PolicyShape,
        update_engine: Callable[[int], Awaitable[None]] | None = None,
        load: Callable[[], EngineLoad | None] | None = None,
        prompts: int | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
        after_turns: float = 0.0,
    ) -> None:
        """`published` is the newest version in the weight store; `shape` is what tokens and experts of the policy can
        be; `update_engine` returns once the engine samples from a version, and is awaited before groups are dispatched
        at it; `load` is what the engine says of itself, None when it says nothing; `prompts` is how many there are,
        None when they never end; `close` is awaited on the loop at the end, after the last group; `after_turns` is how
        many seconds grading and rewarding one attempt may take."""
        self.deadline = config.group_deadline(after_turns=after_turns)
        self.config, self.journal = config, journal
        self.limit = config.max_in_flight_groups
        """Groups that may be in flight; moves with the engine's load when `orchestrator.adaptive_concurrency` is on."""
        self._play, self._published, self._update, self._load = play, published, update_engine, load
        self._prompts, self._close, self._shape = prompts, close, shape
        self._version = -1
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._running: dict[int, asyncio.Task[None]] = {}
        self._failure: Exception | None = None
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._moves: set[asyncio.Task[None]] = set()
        self._one_move = asyncio.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollouts", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)
        self._loop.close()
        self.journal.close()

    def next_batch(self, step: int, *, timeout: float) -> list[TrainGroup]:
        """See GroupSource. Raises BatchTimeout, StageError (the breaker), and whatever a group died of unexpectedly."""
        waiting = asyncio.run_coroutine_threadsafe(self._batch(step, timeout), self._loop)
        try:
            return waiting.result()
        except FutureCancelled as error:
            raise StageError(f"step {step}: the source was stopped") from error

    def flow(self) -> dict[str, float]:
        """See GroupSource."""
        return asyncio.run_coroutine_threadsafe(self._flow(), self._loop).result()

    def version_published(self, version: int) -> None:
        """For the sink, whose word it is: no group starts at a version before. Any thread may tell."""
        self._loop.call_soon_threadsafe(self._move, version)

    async def _flow(self) -> dict[str, float]:
        return {**self.journal.flow(), "concurrency/limit": float(self.limit)}

    async def _batch(self, step: int, timeout: float) -> list[TrainGroup]:
        if step in self.journal.batches:
            return self.journal.load(self.journal.batches[step])
        choice = BatchSchedule(None)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    if self._failure is not None:
                        raise self._failure
                    choice = schedule_batch(
                        self.journal.buffer(),
                        step=step,
                        groups_per_step=self.config.groups_per_step,
                        window=self.config.window_groups,
                        staleness_limit=self.config.staleness_limit,
                    )
                    for prompt in choice.stale:
                        self.journal.dropped(prompt, stale_loss(prompt, step, self.config.staleness_limit))
                    if choice.stale:
                        self._admit()
                    if choice.batch is not None:
                        self.journal.consumed(step, choice.batch)
                        self._admit()
                        return self.journal.load(choice.batch)
                    self._require_prompts(step)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise BatchTimeout(
                f"step {step}: no full batch within {timeout:g} s; it waits for prompts {list(choice.waits_for)} and "
                f"{len(self._running)} groups run"
            ) from error

    def _move(self, version: int) -> None:
        task = self._loop.create_task(self._at_version(version), name=f"version {version}")
        self._moves.add(task)
        task.add_done_callback(self._moved)

    def _moved(self, task: asyncio.Task[None]) -> None:
        self._moves.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self._failure = error
        self._changed.set()

    async def _at_version(self, version: int) -> None:
        """The trainer has published `version`: the engine goes on from it, then the gate has room for more."""
        async with self._one_move:
            if version <= self._version:
                return
            if self._update is not None:
                await self._update(version)
            first, self._version = self._version < 0, version
            if first:
                for prompt in self.journal.in_state("open"):  # a former process was killed with these
                    self._start(prompt)
            self._admit()

    def _admit(self) -> None:
        """Dispatch what the gate allows now, once there is a version to sample from."""
        if self._version < 0:
            return
        config, journal = self.config, self.journal
        if config.orchestrator.adaptive_concurrency and self._load is not None and (load := self._load()) is not None:
            self.limit = next_limit(
                self.limit,
                load,
                least=config.groups_per_step,
                most=config.max_in_flight_groups,
                group_size=config.group_size,
            )
        count = admissible_groups(
            published_version=self._version,
            max_off_policy_steps=config.max_off_policy_steps,
            groups_per_step=config.groups_per_step,
            group_size=config.group_size,
            accepted_groups=len(journal.in_state("accepted")) + len(journal.in_state("consumed")),
            reserved_groups=len(journal.in_state("open")),
            in_flight_limit=self.limit,
            total_groups=config.steps * config.groups_per_step,
            over_sampled_groups=config.over_sampled_groups,
            ready_groups=len(journal.in_state("accepted")),
            max_buffered_groups=config.max_buffered_groups,
        )
        if self._prompts is not None:
            count = min(count, self._prompts - journal.next_prompt)
        for _ in range(count):
            self._start(journal.next_prompt)

    def _start(self, prompt: int) -> None:
        self.journal.dispatched(prompt, version=self._version)
        self._running[prompt] = task = self._loop.create_task(self._group(prompt), name=f"group {prompt}")
        task.add_done_callback(lambda ended: self._ended(prompt, ended))

    async def _group(self, prompt: int) -> None:
        loss = Loss(Cause.INTERNAL_ERROR, "")
        for attempt in range(ATTEMPTS):
            ticket = Ticket(prompt, self._version, attempt)
            try:
                async with asyncio.timeout(self.deadline):
                    result = await self._play(ticket)
                if result.train_group is None:
                    loss = result.loss
                    continue
                check_group(
                    result.train_group,
                    published=self._published(),
                    shape=self._shape,
                    staleness_limit=self.config.staleness_limit,
                )
            except TimeoutError:
                loss = Loss(Cause.GROUP_DEADLINE, f"the group did not end within {self.deadline:g} s")
            except InferenceError as error:
                loss = Loss(error.outcome, str(error))
            else:
                self.journal.accepted(result.train_group)
                self._recent.appendleft(True)
                return
        self.journal.dropped(prompt, Loss(loss.outcome, f"dropped after {ATTEMPTS} attempts: {loss.message}"))
        if is_ours(loss.outcome):
            self._recent.appendleft(False)
        if (
            problem := breaker_open(list(self._recent), in_a_row=self.config.orchestrator.circuit_breaker_losses)
        ) is not None:
            self._failure = StageError(f"{problem}; the last because: {loss}. Nothing is lost: mend it and resume")

    def _ended(self, prompt: int, task: asyncio.Task[None]) -> None:
        del self._running[prompt]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self._failure = error
        if self._failure is None:
            self._admit()
        self._changed.set()

    def _require_prompts(self, step: int) -> None:
        """Raises StageError when the batch can never be made any more, also not once the last version is published."""
        if self._version >= step - 1 and not self._running:
            entries = self.journal.buffer()
            raise StageError(
                f"step {step}: prompts ran out after {self.journal.next_prompt}: "
                f"{sum(place.state == 'accepted' for place in entries)} groups are left and a step needs "
                f"{self.config.groups_per_step}"
            )

    async def _stop(self) -> None:
        running = [*self._running.values(), *self._moves]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_SECONDS)
        if self._close is not None:
            await self._close()
