"""One attempt at a task: tokens in, tokens out, tools in a sandbox, grading in a second clean one.

The transcript is an append-only list of tokens: the opening prompt, then for each turn the sampled tokens (exactly as
sampled) and the chat template's rendering of the tool results. Nothing is decoded and re-encoded. An infrastructure
failure ends in a trajectory with verdict `infra_error` and no reward. Everything else, including malformed calls,
runaway turns and calls that never end, is the policy's work and is graded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from sandbox.backends.base import Backend, Limits, Snapshot, released
from sandbox.backends.snapshots import SnapshotStore
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import StopReason, ToolCall, ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from trainer.inference.contract import InferenceClient
from trainer.rollouts.checkpoint import Keeper, RolloutCheckpoints, restore
from trainer.rollouts.ending import Store, graded
from trainer.rollouts.limits import EpisodeLimits
from trainer.rollouts.losses import Losses, Scene
from trainer.rollouts.open_turn import OpenTurn, ReadTurn, TurnObserver
from trainer.rollouts.record import Record
from trainer.rollouts.segments import KEPT_SHARE, Windows, last_turns, read_summary
from trainer.rollouts.snapshots import Origin, TurnSnapshots
from trainer.rollouts.turn import Sampler
from trainer.rollouts.turns import EpisodeSettings, Reply, play_turns
from trainer.types import Trajectory, Turn

log = logging.getLogger(__name__)

SUMMARY_SEED = 500
"""Seed offset of summaries, apart from the seeds of turns."""


PROMPT_TAIL = 256
"""Tokens of the prompt that a renderer looks at: the generation prompt stands at its end."""

SPARE_SECONDS = 300.0
"""Seconds that an agent's sandbox outlives its episode's limits."""

VISIBLE_SECONDS = 60.0
"""Time limit of a reward's visible command."""


Watch = Callable[[int, tuple[dict[str, Any], ...], Sequence[Turn]], Awaitable[None]]
"""Called after each turn, for observers: (sample, opening messages, turns so far)."""


class ParsedTurn(Protocol):
    """A policy turn parsed from its tokens; `error` is set when an intended call does not parse."""

    @property
    def text(self) -> str: ...

    @property
    def content(self) -> str: ...

    @property
    def calls(self) -> tuple[ToolCall, ...]: ...

    @property
    def error(self) -> str | None: ...

    @property
    def thinking_tokens(self) -> int: ...


class Renderer(Protocol):
    """The policy's chat template: the only conversion between messages or calls and tokens."""

    stop_ids: list[int]

    def start(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]: ...

    def observe(
        self, results: Sequence[ToolResult], ask: str = "", *, said: Sequence[int] = (), before: Sequence[int] = ()
    ) -> list[int]: ...

    def parse(
        self, token_ids: Sequence[int], *, tools: Sequence[Mapping[str, Any]] = (), prompt: Sequence[int] = ()
    ) -> ParsedTurn: ...


@dataclass(frozen=True, slots=True)
class RolloutServices:
    """Services of episodes. `slots` bounds the episodes that hold sandboxes at the same time."""

    client: InferenceClient
    renderer: Renderer
    backend: Backend
    environments: EnvironmentStore
    deployment: str
    slots: asyncio.Semaphore
    snapshots: SnapshotStore | None = None
    """Store of per-turn snapshots, for settings that request them."""
    checkpoints: RolloutCheckpoints | None = None
    """Store of attempts in progress, each beside its newest snapshot."""
    watch: Watch | None = None
    observer: TurnObserver | None = None
    """Hears of turns before they are recorded."""
    store: Store | None = None
    min_version: int = 0
    """Minimum policy version of the engine before it samples a token."""
    min_kept_version: int = 0
    """Minimum version of a saved attempt's tokens; older attempts of a lost worker start over."""


async def run_episode(
    *,
    task: TaskSpec,
    sample: int,
    session_id: str,
    seed: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    origin: Origin | None = None,
    resume: bool = False,
    losses: Losses | None = None,
) -> Trajectory:
    """Run one episode to a graded, scored trajectory. Never raises for policy or infrastructure faults; may be
    cancelled.

    With an `origin` it continues from there: same sandbox, same tokens, and earlier turns count towards the limits.
    With `resume` it continues an attempt saved by a lost worker, if any (`checkpoint.py`); that attempt's tokens are
    its own. `losses` are those of the earlier attempts at the same rollout.
    """
    scene = Scene(services.backend, losses or Losses())
    keeper = Keeper(services.checkpoints, task, sample, seed)
    checkpoint = await keeper.usable(services.snapshots, services.min_kept_version) if resume else None
    try:
        record = restore(checkpoint[0]) if checkpoint else Record.begin(task, origin)
        snapshot = checkpoint[1].snapshot if checkpoint else origin.snapshot if origin else None
        limits = EpisodeLimits.of(settings.sampling)
        limits.turns.used = sum(not turn.summary for turn in record.turns)
        limits.tools.used = sum(turn.tool_seconds for turn in record.turns)

        async def act() -> StopReason:
            return await _act(record, limits, task, session_id, seed, settings, services, snapshot, keeper, scene)

        return await graded(
            record,
            limits,
            act,
            task=task,
            sample=sample,
            reward=settings.reward,
            slots=services.slots,
            backend=services.backend,
            environments=services.environments,
            scene=scene,
            store=services.store,
        )
    finally:
        if checkpoint:
            checkpoint[1].close()


async def _act(
    record: Record,
    limits: EpisodeLimits,
    task: TaskSpec,
    session_id: str,
    seed: int,
    settings: EpisodeSettings,
    services: RolloutServices,
    snapshot: Snapshot | None,
    keeper: Keeper,
    scene: Scene,
) -> StopReason:
    """Run the turns in a fresh sandbox, or in one restored from a `snapshot`, and take the patch."""
    started = time.monotonic()
    profile = get_profile(settings.harness.profile)
    env = services.environments.spec(task.environment, profile.machine)
    async with limits.machine.spending():
        fresh = await scene.start(env, agent_limits(limits), snapshot)
    async with released(fresh) as sandbox:
        session = scene.session = Session(sandbox, profile)
        record.schema_hash = session.schema_hash
        if record.turns:
            scene.past = tuple(call for turn in record.turns for call in turn.calls)
            session.recall(scene.past)
        else:
            record.read(services.renderer.start(record.messages, session.schemas()))
        record.spend("start", time.monotonic() - started)
        player = TokenPlayer(
            record,
            limits,
            session,
            seed,
            services,
            Windows(settings.harness.summary, settings.sampling.max_context_tokens, made=len(record.segments)),
            Sampler(
                record,
                limits,
                session_id,
                settings.sampling,
                services.client,
                services.deployment,
                tuple(services.renderer.stop_ids),
                services.min_version,
            ),
            TurnSnapshots(services.snapshots, settings.harness.snapshot_every),
            keeper,
        )
        try:
            stop = await play_turns(player, record, limits, session, settings)
        finally:
            player.close_turn()
        record.patch = await sandbox.diff()
        if settings.reward.visible_weight:  # after the patch was taken: what the command leaves is no work
            ran = await sandbox.exec(settings.reward.visible_command, timeout=VISIBLE_SECONDS)
            record.visible_passed = ran.exit_code == 0
    return stop


@dataclass(slots=True)
class TokenPlayer:
    """A policy that is sampled token by token (`turns.Player`)."""

    record: Record
    limits: EpisodeLimits
    session: Session
    seed: int
    services: RolloutServices
    windows: Windows
    sample: Sampler
    snapshots: TurnSnapshots
    keeper: Keeper

    async def begin(self) -> None:
        if self.record.asked_summary:
            await self.summarize()
        self._count()

    def _count(self) -> None:
        self.limits.tokens.used = len(self.record.tokens)

    async def ask(self) -> Reply:
        start = len(self.record.tokens)
        parse = partial(
            self.services.renderer.parse,
            tools=self.session.schemas(),
            prompt=self.record.tokens[max(0, start - PROMPT_TAIL) : start],
        )
        turn = self._open_turn(parse)
        response, seconds = await self.sample(self.limits.tokens.room(), self.seed * 1009 + self.limits.turns.used)
        turn.sampled = True
        parsed = parse(response.token_ids)
        cut = response.finish_reason == "length"
        refusals: tuple[ToolResult, ...] = ()
        if parsed.error:
            error = ToolError(kind=ToolErrorKind.MALFORMED_CALL, message=parsed.error)
            refusals = (ToolResult(call_id="", output=f"error: {parsed.error}", error=error),)
        return Reply(
            text=parsed.text,
            calls=() if cut or parsed.error else parsed.calls,
            seconds=seconds,
            cut=cut,
            error=parsed.error,
            refusals=refusals,
            thinking_tokens=parsed.thinking_tokens,
            segment=len(self.record.segments),
            token_start=start,
            token_end=len(self.record.tokens),
        )

    async def snapshot(self, *, over: bool) -> str:
        began = time.monotonic()
        digest = "" if over else await self.snapshots.after(len(self.record.turns), self.session.sandbox)
        self.record.spend("snapshots", time.monotonic() - began)
        return digest

    async def recorded(self) -> None:
        if self.services.watch is not None:
            async with self.limits.machine.spending():
                await _show(self.services.watch, self.keeper.sample, self.record)
        self.close_turn()

    def _open_turn(self, parse: Callable[[Sequence[int]], ReadTurn], *, summary: bool = False) -> OpenTurn:
        record = self.record
        turn = OpenTurn(
            sample=self.keeper.sample,
            deployment=self.sample.deployment,
            session=self.sample.session_id,
            index=len(record.turns),
            segment=len(record.segments),
            window=record.tokens,
            start=len(record.tokens),
            parse=parse,
            summary=summary,
        )
        if self.services.observer is not None:
            self.services.observer.opened(turn)
        return turn

    def close_turn(self) -> None:
        if self.services.observer is not None:
            self.services.observer.closed(self.keeper.sample)

    async def go_on(self, reply: Reply, turn: Turn) -> StopReason | None:
        record, windows, renderer = self.record, self.windows, self.services.renderer
        said, before = record.tokens[turn.token_start : turn.token_end], record.tokens[: turn.token_start]
        observation = renderer.observe(turn.results, ask=turn.asked, said=said, before=before[-PROMPT_TAIL:])
        if turn.asked or not windows.full(len(record.tokens) + len(observation)):
            record.read(observation)
        elif windows.asks:
            question = windows.question(record.tokens, turn.token_start, turn.results, renderer)
            if question is None:
                return StopReason.TOKEN_LIMIT
            record.read(question)
            await self.summarize()
        else:
            record.read(observation)
            room = int(windows.settings.trigger_tokens * KEPT_SHARE)
            kept_tokens = last_turns(record.tokens, record.turns, len(record.segments), room)
            record.close_segment()
            windows.made += 1
            record.read([*renderer.start(record.messages, self.session.schemas()), *kept_tokens])
        if turn.snapshot:
            async with self.limits.machine.spending():
                await self.keeper.keep(record, turn.snapshot)
        self._count()
        return None

    async def summarize(self) -> None:
        """Sample the policy's summary after its request, and open the next window with it."""
        start = len(self.record.tokens)
        self.record.asked_summary = False
        self.windows.made += 1
        self._open_turn(self.services.renderer.parse, summary=True)
        response, seconds = await self.sample(
            self.windows.settings.max_tokens, self.seed * 1009 + SUMMARY_SEED + self.windows.made
        )
        self.close_turn()
        parsed = self.services.renderer.parse(response.token_ids)
        self.record.turns.append(
            Turn(
                index=len(self.record.turns),
                segment=len(self.record.segments),
                text=parsed.text,
                summary=True,
                token_start=start,
                token_end=len(self.record.tokens),
                thinking_tokens=parsed.thinking_tokens,
                generate_seconds=seconds,
            )
        )
        self.record.close_segment()
        messages = self.windows.next_messages(
            self.record.messages, read_summary(parsed.content or parsed.text), self.session.todos
        )
        self.record.opening = str(messages[-1]["content"])
        self.record.read(self.services.renderer.start(messages, self.session.schemas()))


async def _show(watch: Watch, sample: int, record: Record) -> None:
    """Notify observers. A failure does not affect the rollout."""
    try:
        await watch(sample, record.messages, record.turns)
    except Exception:
        log.warning("sample %d cannot be looked at while it runs", sample, exc_info=True)


def agent_limits(limits: EpisodeLimits) -> Limits:
    """Limits of an agent's sandbox; it lives as long as its episode may last."""
    usual = Limits()
    return replace(usual, life_seconds=max(usual.life_seconds, limits.wall_seconds + SPARE_SECONDS))
