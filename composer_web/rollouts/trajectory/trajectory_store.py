"""Reading copy of a trajectory: turns in windows, so that a page reads only what it shows.

Small trajectories are read whole. A large one gets a copy beside its blob: a head (everything but turns and tokens,
plus the facts of each turn), windows of turns, and its segments. Texts in the copy are truncated, and the omitted
characters are counted; the blob has everything. A growing copy in the same format shows a running rollout
(`Growing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic_core import to_json

from composer_web.core.artifacts import artifacts
from composer_web.core.errors import NotFound
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.selectors import require_kept
from sandbox.harness.types import ToolCall, ToolResult
from trainer.types import Frozen, Segment, Trajectory, Turn

WINDOW = 20
"""Turns per window."""
SMALL = 512 << 10
"""Maximum unpacked size of a trajectory that is parsed whole on each view (about 5 ms)."""
MAX_WINDOW = 4 << 20
"""Maximum bytes of one window in the copy. Texts are truncated further until it fits."""
LIMITS = (200_000, 10_000, 500)
"""Maximum characters of one text in the copy, from generous to strict."""
MAX_CALLS = 500
"""Maximum calls of one turn in the copy."""
MAX_HEAD = 4 << 20
E = TypeVar("E")


class TurnFacts(Frozen):
    """Facts about a turn that need no reading of it."""

    tools: tuple[str, ...] = ()
    failed: bool = False
    summary: bool = False
    segment: int = 0
    tokens: int = 0
    cut: bool = False
    """The harness truncated the middle of an output."""


class Head(Frozen):
    """A trajectory without its turns and tokens."""

    messages: tuple[dict[str, Any], ...]
    facts: tuple[TurnFacts, ...]
    trajectory: Trajectory | None = None
    """The rest of the trajectory. None while the rollout runs."""
    segment_tokens: tuple[int, ...] = ()
    missing: int = 0
    """Number of characters only in the blob."""


class Window(Frozen):
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Reading:
    """An open trajectory."""

    head: Head
    prefix: str
    """Prefix of the copy in the artifact store. Empty if the trajectory is in memory."""
    whole: Trajectory | None = None

    @property
    def total(self) -> int:
        return len(self.head.facts)

    def turns(self, places: Sequence[int]) -> list[Turn]:
        """Turns by index. They must exist. Raises ArtifactError."""
        if self.whole is not None:
            return [self.whole.turns[place] for place in places]
        windows = {number: self._window(number) for number in sorted({place // WINDOW for place in places})}
        return [windows[place // WINDOW].turns[place % WINDOW] for place in places]

    def each(self) -> Iterator[Turn]:
        """All turns, with one window in memory at a time. Raises ArtifactError."""
        if self.whole is not None:
            yield from self.whole.turns
            return
        for number in range((self.total + WINDOW - 1) // WINDOW):
            yield from self._window(number).turns

    def segment(self, index: int) -> Segment:
        """Tokens of a context window, which must exist. Raises ArtifactError."""
        if self.whole is not None:
            return self.whole.segments[index]
        return artifacts().get_model(f"{self.prefix}/segment-{index}.json.zst", Segment)

    def _window(self, number: int) -> Window:
        return artifacts().get_model(f"{self.prefix}/turns-{number}.json.zst", Window)


def of(rollout: Rollout) -> Reading:
    """Open the recorded trajectory, or the current state of a running rollout. Raises NotFound (TrajectoryDeleted
    for one that was deleted), ArtifactError."""
    key = rollout.artifact_key
    if not key:
        growing = live_prefix(rollout.group_id, rollout.sample)
        if rollout.verdict or not artifacts().exists(f"{growing}/head.json.zst"):
            raise NotFound("recorded trajectory of rollout", f"{rollout.pk} (it is {rollout.state})")
        return Reading(artifacts().get_model(f"{growing}/head.json.zst", Head), growing)
    require_kept(rollout)
    prefix = prefix_of(key)
    if artifacts().exists(f"{prefix}/head.json.zst"):
        return Reading(artifacts().get_model(f"{prefix}/head.json.zst", Head), prefix)
    whole = artifacts().get_model(key, Trajectory)
    if artifacts().unpacked_bytes(key) <= SMALL:
        return in_memory(whole)
    return copy(key, whole)


def in_memory(trajectory: Trajectory) -> Reading:
    """Reading of a trajectory already in memory."""
    return Reading(_head(trajectory, trajectory.messages, 0), "", trajectory)


def record(key: str, trajectory: Trajectory) -> None:
    """Store a trajectory, with a reading copy if it is large. Raises ArtifactError."""
    artifacts().put_model(key, trajectory)
    if artifacts().unpacked_bytes(key) > SMALL:
        copy(key, trajectory)


def copy(key: str, trajectory: Trajectory) -> Reading:
    """Create the reading copy of the trajectory with blob `key`. Idempotent. Raises ArtifactError."""
    prefix, missing = prefix_of(key), 0
    for number, start in enumerate(range(0, len(trajectory.turns), WINDOW)):
        missing += _put_window(prefix, number, trajectory.turns[start : start + WINDOW])
    for index, segment in enumerate(trajectory.segments):
        artifacts().put_model(f"{prefix}/segment-{index}.json.zst", segment)
    rest = trajectory.model_copy(update={"turns": (), "segments": ()})
    for limit in LIMITS:
        cutter = Cutter(limit)
        short = cutter.trajectory(rest)
        content = short.model_dump_json()
        if len(content) <= MAX_HEAD:
            break
    head = _head(trajectory, short.messages, missing + cutter.missing, short)
    # The head comes last: where it is, everything is.
    artifacts().put_model(f"{prefix}/head.json.zst", head)
    return Reading(head, prefix)


def prefix_of(key: str) -> str:
    """Prefix of a blob's copy."""
    return f"{key.removesuffix('.json.zst')}.read"


def _head(
    trajectory: Trajectory, messages: tuple[dict[str, Any], ...], missing: int, rest: Trajectory | None = None
) -> Head:
    return Head(
        messages=messages,
        facts=tuple(facts_of(turn) for turn in trajectory.turns),
        trajectory=rest or trajectory.model_copy(update={"turns": (), "segments": ()}),
        segment_tokens=tuple(len(segment.tokens) for segment in trajectory.segments),
        missing=missing,
    )


def facts_of(turn: Turn) -> TurnFacts:
    return TurnFacts(
        tools=tuple(dict.fromkeys(call.name[:60] for call in turn.calls[:MAX_CALLS])),
        failed=any(result.error is not None for result in turn.results),
        summary=turn.summary,
        segment=turn.segment,
        tokens=turn.token_end - turn.token_start,
        cut=any(result.cut_bytes > 0 for result in turn.results),
    )


def _put_window(prefix: str, number: int, turns: Sequence[Turn]) -> int:
    """Store a window with texts as long as fit. Returns the number of omitted characters."""
    for limit in LIMITS:
        cutter = Cutter(limit)
        window = Window(turns=tuple(cutter.turn(turn) for turn in turns))
        content = window.model_dump_json().encode()
        if len(content) <= MAX_WINDOW:
            break
    artifacts().put(f"{prefix}/turns-{number}.json.zst", content)
    return cutter.missing


@dataclass
class Cutter:
    """Truncates texts and counts the omitted characters."""

    limit: int
    missing: int = 0

    def text(self, text: str) -> str:
        if len(text) <= self.limit:
            return text
        head, left_out = self.limit * 2 // 3, len(text) - self.limit
        self.missing += left_out
        gap = f"\n… {left_out} characters are not in the copy for reading; the JSON download has them …\n"
        return text[:head] + gap + text[head - self.limit :]

    def value(self, value: Any) -> Any:
        """Truncate the texts of any JSON value. Lists keep their first entries."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(one) for name, one in self.first(list(value.items()))}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in self.first(value)]
        return value

    def first(self, entries: Sequence[E], most: int = MAX_CALLS) -> Sequence[E]:
        """First entries. The JSON characters of the rest are counted as omitted."""
        self.missing += sum(len(to_json(entry)) for entry in entries[most:])
        return entries[:most]

    def turn(self, turn: Turn) -> Turn:
        return turn.model_copy(
            update={
                "text": self.text(turn.text),
                "asked": self.text(turn.asked),
                "calls": tuple(self._call(call) for call in self.first(turn.calls)),
                "results": tuple(self._result(result) for result in self.first(turn.results)),
            }
        )

    def _call(self, call: ToolCall) -> ToolCall:
        return call.model_copy(update={"name": self.text(call.name), "arguments": self.value(call.arguments)})

    def _result(self, result: ToolResult) -> ToolResult:
        return result.model_copy(update={"output": self.text(result.output)})

    def trajectory(self, rest: Trajectory) -> Trajectory:
        """Truncate everything but turns and segments."""
        report = rest.report
        cases = tuple(
            case.model_copy(update={"message": self.text(case.message)}) for case in self.first(report.cases, 10_000)
        )
        return rest.model_copy(
            update={
                "messages": tuple(self.value(message) for message in rest.messages),
                "patch": self.text(rest.patch) if len(rest.patch) > 10 * self.limit else rest.patch,
                "patch_skipped": tuple(self.first(rest.patch_skipped, 1000)),
                "report": report.model_copy(update={"cases": cases, "cause": self.text(report.cause)}),
            }
        )


# --- while it runs --------------------------------------------------------------------------------------------------


def live_prefix(group_id: int, sample: int) -> str:
    return f"groups/{group_id}/live/{sample}"


@dataclass
class Growing:
    """Copy of a running rollout. Each `grow` writes what is new."""

    prefix: str
    facts: list[TurnFacts] = field(default_factory=list)

    def grow(self, messages: tuple[dict[str, Any], ...], turns: Sequence[Turn]) -> None:
        """Raises ArtifactError."""
        if len(turns) < len(self.facts):
            self.facts.clear()  # the attempt began again
        since = len(self.facts) // WINDOW
        for number in range(since, (len(turns) + WINDOW - 1) // WINDOW):
            _put_window(self.prefix, number, turns[number * WINDOW : (number + 1) * WINDOW])
        self.facts += [facts_of(turn) for turn in turns[len(self.facts) :]]
        cutter = Cutter(LIMITS[1])
        short = tuple(cutter.value(message) for message in messages)
        artifacts().put_model(
            f"{self.prefix}/head.json.zst", Head(messages=short, facts=tuple(self.facts), missing=cutter.missing)
        )
