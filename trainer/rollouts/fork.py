"""Going on from a turn of a recorded trajectory: the sandbox as it was then, the tokens as they were, other samples.

The sandbox comes from the newest snapshot at or before the turn; calls since then are run again, once for all
continuations, and must answer as they did. Nothing is re-tokenised: a continuation reads the recorded tokens.
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
from trainer.rollouts.types import Forked, Trajectory, Turn

log = logging.getLogger(__name__)

VOLATILE = re.compile(
    r"\b0x[0-9a-fA-F]{4,}\b"  # addresses
    r"|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?|\b\d\d:\d\d(:\d\d)?(\.\d+)?\b"  # times
    r"|\b\d+(\.\d+)?(e-?\d+)? ?(ns|µs|us|ms|s|sec|secs|seconds|m|min|minutes)\b"  # durations
    r"|\bas process \d+\b|/tmp/[\w.-]+"  # processes, temporary names
)
"""What differs when the same command is run again."""
EXCERPT = 160


class ForkImpossible(Exception):
    """The trajectory cannot be continued from that turn. Trying again changes nothing; the message says what would."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What continuations start from. Close the lease when the last of them has ended."""

    origin: Origin
    lease: Lease


def check(trajectory: Trajectory, turns: int) -> None:
    """Whether `trajectory` can be continued after its first `turns` turns. Raises ForkImpossible."""
    total = len(trajectory.turns)
    if total < 2:
        raise ForkImpossible(f"it has {total} turn{'' if total == 1 else 's'}: nothing to go on from before its end")
    if not 1 <= turns < total:
        raise ForkImpossible(f"turn {turns}: choose one from 1 to {total - 1}; the last turn ended the episode")
    if trajectory.turns[turns].summary:
        raise ForkImpossible(f"turn {turns + 1} is a summary; choose an earlier one")
    if trajectory.turns[turns].segment:
        raise ForkImpossible(f"turn {turns + 1} is in its second context window; only the first can be continued")


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
    """The moment after the first `turns` turns of `parent`, which the continuations know as `name`.

    Raises ForkImpossible, SandboxError, HarnessFailure, TaskError.
    """
    check(parent, turns)
    if schema_hash_of(profile) != parent.tool_schema_hash:
        raise ForkImpossible("the tools have changed since it was recorded, so its calls mean something else now")
    kept = parent.turns[:turns]
    lease, base = await _newest(kept, store)
    if base < turns:
        lease = await _replay(kept, base, lease, task, profile, backend, environments, store)
    assert lease is not None, "a snapshot of the turn, or of its replay"
    tokens = parent.segments[0].tokens[: parent.turns[turns].token_start]
    forked = Forked(parent=name, turns=turns, tokens=len(tokens), replayed=turns - base)
    return Prepared(Origin(parent.messages, kept, tokens, lease.snapshot, forked), lease)


async def _newest(kept: Sequence[Turn], store: SnapshotStore) -> tuple[Lease | None, int]:
    """The last snapshot that is still there, and how many turns it holds. One that is gone or damaged is passed over."""
    for count in range(len(kept), 0, -1):
        if digest := kept[count - 1].snapshot:
            try:
                return await store.use(digest), count
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
    """Run the calls of `kept[base:]` again on top of `lease` and keep the outcome; `lease` is closed."""
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
    """Raises ForkImpossible where a call answered otherwise than it is recorded."""
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
