"""Forks a recorded trajectory at a turn: the same sandbox and tokens, with new samples.

The sandbox comes from the newest snapshot at or before the turn. Later calls are rerun once for all continuations and
must return the recorded results. Nothing is re-tokenised: a continuation reads the recorded tokens, including those of
closed context windows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.backends.base import Backend, SnapshotError
from sandbox.backends.snapshots import Lease, SnapshotStore
from sandbox.harness.profile import Profile
from sandbox.harness.session import Session, schema_hash_of
from sandbox.harness.types import ToolCall, ToolResult
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from trainer.rollouts.snapshots import Origin
from trainer.types import Forked, Trajectory, Turn

log = logging.getLogger(__name__)

VOLATILE = re.compile(
    r"\b0x[0-9a-fA-F]{4,}\b"  # addresses
    r"|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?|\b\d\d:\d\d(:\d\d)?(\.\d+)?\b"  # times
    r"|\b\d+(\.\d+)?(e-?\d+)? ?(ns|µs|us|ms|s|sec|secs|seconds|m|min|minutes)\b"  # durations
    r"|\bas process \d+\b|/tmp/[\w.-]+"  # processes, temporary names
)
"""Output that varies between runs of the same command."""
EXCERPT = 160
NO_TOKENS = "its policy is behind an endpoint, which gives no tokens to go on from"


class ForkImpossible(Exception):
    """The trajectory cannot be continued from that turn. Retrying does not help; the message names a remedy."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Starting point of continuations. Close the lease when the last of them has ended."""

    origin: Origin
    lease: Lease


def check_moment(total: int, turns: int) -> None:
    """Check that a rollout of `total` turns has a fork point after its first `turns` ones. Raises ForkImpossible."""
    if total < 2:
        raise ForkImpossible(f"it has {total} turn{'' if total == 1 else 's'}: nothing to go on from before its end")
    if not 1 <= turns < total:
        raise ForkImpossible(f"turn {turns}: choose one from 1 to {total - 1}; the last turn ended the episode")


def check(total: int, windows: int, turns: int, *, segment: int) -> None:
    """Check that a rollout of `total` turns with tokens of `windows` context windows can continue after its first
    `turns` ones; `segment` is that of the next turn. Raises ForkImpossible.
    """
    check_moment(total, turns)
    if not windows:
        raise ForkImpossible(NO_TOKENS)
    if segment >= windows:
        raise ForkImpossible(f"the tokens of its context window {segment + 1} are not recorded")


async def prepare(
    parent: Trajectory,
    *,
    name: str,
    turns: int,
    task: TaskSpec,
    profile: Profile,
    backend: Backend,
    environments: EnvironmentStore,
    store: SnapshotStore,
) -> Prepared:
    """Prepare the fork point after the first `turns` turns of `parent`; continuations refer to the parent as `name`.

    Continuations read the recorded tokens of every context window up to there. Where the next turn is a summary, they
    read its request and write their own summaries. Raises ForkImpossible, SandboxError, HarnessFailure, TaskError.
    """
    check_moment(len(parent.turns), turns)
    after = parent.turns[turns]
    check(len(parent.turns), len(parent.segments), turns, segment=after.segment)
    left = tuple(segment.tokens for segment in parent.segments[: after.segment])
    tokens = parent.segments[after.segment].tokens[: after.token_start]
    lease, replayed = await moment(
        parent, turns=turns, task=task, profile=profile, backend=backend, environments=environments, store=store
    )
    read = sum(map(len, left)) + len(tokens)
    forked = Forked(parent=name, turns=turns, tokens=read, replayed=replayed)
    kept = parent.turns[:turns]
    return Prepared(Origin(parent.messages, kept, left, tokens, after.summary, lease.snapshot, forked), lease)


async def moment(
    parent: Trajectory,
    *,
    turns: int,
    task: TaskSpec,
    profile: Profile,
    backend: Backend,
    environments: EnvironmentStore,
    store: SnapshotStore,
) -> tuple[Lease, int]:
    """Sandbox after the first `turns` turns of `parent`, and how many turns were rerun for it. Needs no tokens. Raises
    like `prepare`.
    """
    check_moment(len(parent.turns), turns)
    if schema_hash_of(profile) != parent.tool_schema_hash:
        raise ForkImpossible("the tools have changed since it was recorded, so its calls mean something else now")
    kept = parent.turns[:turns]
    lease, base = await _newest(kept, store)
    if base < turns:
        lease = await _replay(kept, base, lease, task, profile, backend, environments, store)
    assert lease is not None, "a snapshot of the turn, or of its replay"
    return lease, turns - base


async def _newest(kept: Sequence[Turn], store: SnapshotStore) -> tuple[Lease | None, int]:
    """The last available snapshot and the number of turns it covers, including later turns without calls. Missing and
    damaged snapshots are skipped.
    """
    for count in range(len(kept), 0, -1):
        if digest := kept[count - 1].snapshot:
            try:
                lease = await store.use(digest)
                idle = next((i for i, turn in enumerate(kept[count:]) if turn.calls), len(kept) - count)
                return lease, count + idle
            except SnapshotError as error:
                log.info("turn %d: %s; its calls are run again", count, error)
    return None, 0


async def _replay(
    kept: Sequence[Turn],
    base: int,
    lease: Lease | None,
    task: TaskSpec,
    profile: Profile,
    backend: Backend,
    environments: EnvironmentStore,
    store: SnapshotStore,
) -> Lease:
    """Rerun the calls of `kept[base:]` on top of `lease` and snapshot the result; `lease` is closed."""
    try:
        env = environments.spec(task.environment, profile.machine)
        async with await backend.start(env, snapshot=lease.snapshot if lease else None) as sandbox:
            session = Session(sandbox, profile)
            session.recall([call for turn in kept[:base] for call in turn.calls])
            for turn in kept[base:]:
                if turn.calls:
                    _compare(turn, await session.run(turn.calls))
            return await store.save(sandbox)
    finally:
        if lease is not None:
            lease.close()


def _compare(turn: Turn, again: Sequence[ToolResult]) -> None:
    """Raises ForkImpossible where a result differs from the recorded one."""
    for call, before, now in zip(turn.calls, turn.results, again, strict=False):
        if _lasting(before) != _lasting(now):
            raise ForkImpossible(_difference(turn, call, before, now))


def _lasting(result: ToolResult) -> tuple[str | None, str]:
    return result.error.kind if result.error else None, VOLATILE.sub("*", result.output)


def _difference(turn: Turn, call: ToolCall, before: ToolResult, now: ToolResult) -> str:
    was, is_ = (VOLATILE.sub("*", result.output) for result in (before, now))
    place = next((i for i, (a, b) in enumerate(zip(was, is_, strict=False)) if a != b), min(len(was), len(is_)))
    start = max(0, place - EXCERPT // 4)
    return (
        f"turn {turn.index + 1} has no snapshot, and {call.name} answers otherwise when it is run again: recorded "
        f"{was[start : start + EXCERPT]!r}, now {is_[start : start + EXCERPT]!r}. Fork before this turn, or keep "
        "snapshots in runs (stage.harness.snapshot_every)"
    )
