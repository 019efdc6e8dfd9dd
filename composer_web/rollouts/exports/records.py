"""Rollouts as format-neutral records for export to other formats. Long rollouts are streamed step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator

from composer_web.core.errors import UserError
from composer_web.rollouts import selectors
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.trajectory import trajectory_store
from composer_web.rollouts.trajectory.trajectory_store import Reading
from sandbox.formats import atif
from sandbox.formats.record import Call, Opening, Record, Result, Step
from sandbox.harness.session import profile_of_schema, schemas_of
from trainer.types import Segment, Turn

MAX_PROMPT_IDS = 4_000_000
"""Limit for all prompts together. Each prompt contains the ones before it, so a long trajectory would repeat its
tokens hundreds of times."""
THIN = (
    "prompt_token_ids stand in the last step of each context window alone; "
    "those of an earlier step of it are the first prompt_tokens of them"
)


def open_whole(rollout: Rollout) -> Reading:
    """The whole recording, from the reading copy unless it is truncated. Raises UserError, ArtifactError."""
    if not rollout.artifact_key:
        raise UserError("rollout", f"rollout {rollout.pk} has no trajectory: it was lost to the machine")
    read = trajectory_store.of(rollout)  # refuses one that was deleted
    if read.head.missing or read.head.trajectory is None:
        return trajectory_store.in_memory(selectors.trajectory(rollout))
    return read


def without_steps(rollout: Rollout, read: Reading) -> Record:
    """Everything but the steps."""
    kept = read.head.trajectory
    assert kept is not None, "it is recorded"
    group = rollout.group
    owner = group.run or group.evaluation
    model = getattr(owner, "policy_out", None) or getattr(owner, "policy", None)
    newest = -1 if rollout.newest_version is None else rollout.newest_version
    return Record(
        id=f"rollout-{rollout.pk}",
        task=kept.task_id,
        model=f"{model}@{newest}" if model else "policy",
        opening=tuple(
            Opening(role="system" if m["role"] == "system" else "user", content=str(m["content"]))
            for m in kept.messages
        ),
        steps=(),
        tools=tuple(schemas_of(profile)) if (profile := profile_of_schema(kept.tool_schema_hash)) else (),
        reward=kept.reward,
        verdict=kept.verdict.value,
        stop_reason=kept.stop_reason.value,
        patch=kept.patch,
        seconds=kept.seconds.get("total", 0.0),
        extra={"bundle_hash": kept.bundle_hash, "sample": kept.sample},
    )


def is_thin(read: Reading) -> bool:
    """Whether the prompts are too long to be repeated in each step."""
    lengths = read.head.segment_tokens
    return sum(lengths[fact.segment] for fact in read.head.facts if fact.segment < len(lengths)) > MAX_PROMPT_IDS


def steps(read: Reading) -> Iterator[tuple[Step, int]]:
    """Each turn with its number of prompt tokens. One window of turns and one of tokens are in memory. Raises
    ArtifactError."""
    last = {fact.segment: index for index, fact in enumerate(read.head.facts)}
    thin = is_thin(read)
    opened, segment = -1, None
    for place, turn in enumerate(read.each()):
        if turn.segment != opened:
            known = turn.segment < len(read.head.segment_tokens)
            opened, segment = turn.segment, read.segment(turn.segment) if known else None
        yield _step(turn, segment, prompt=not thin or last[turn.segment] == place)


def _step(turn: Turn, segment: Segment | None, *, prompt: bool) -> tuple[Step, int]:
    span = slice(turn.token_start, turn.token_end)
    before = segment.tokens[: turn.token_start] if segment else []
    tokens = segment.tokens[span] if segment else []
    known = {call.id for call in turn.calls}
    return Step(
        content=turn.text,
        calls=tuple(Call(id=c.id, name=c.name, arguments=json.dumps(c.arguments)) for c in turn.calls),
        results=tuple(
            Result(call_id=r.call_id, content=r.output, error=r.error.kind.value if r.error else "")
            for r in turn.results
            if r.call_id in known
        ),
        prompt_token_ids=tuple(before) if prompt else (),
        completion_token_ids=tuple(tokens),
        logprobs=tuple(segment.logprobs[span]) if segment else (),
        excluded=bool(segment and tokens and not any(segment.loss_mask[span])),
        seconds=turn.generate_seconds + turn.tool_seconds,
    ), len(before)


def record_of(rollout: Rollout) -> Record:
    """The complete record. Raises UserError, ArtifactError."""
    read = open_whole(rollout)
    return without_steps(rollout, read).model_copy(update={"steps": tuple(step for step, _ in steps(read))})


def as_atif(rollout: Rollout) -> Iterator[str]:
    """Stream the ATIF document in chunks of at most one step. Raises UserError, ArtifactError before the first
    chunk."""
    read = open_whole(rollout)
    return _atif(without_steps(rollout, read), read)


def _atif(record: Record, read: Reading) -> Iterator[str]:
    document, _ = atif.export(record)
    opening, _ = document.pop("steps"), document.pop("final_metrics")
    if is_thin(read):
        document["notes"] = THIN
    yield json.dumps(document)[:-1] + ', "steps": ['
    number = prompts = completions = 0
    for made in opening:
        yield _member(number := number + 1, made)
    for step, prompt in steps(read):
        (made,) = atif.export(record.model_copy(update={"opening": (), "steps": (step,)}))[0]["steps"]
        if metrics := made.get("metrics"):
            metrics["prompt_tokens"] = prompt
            if prompt and not step.prompt_token_ids:
                del metrics["prompt_token_ids"]
        prompts, completions = prompts + prompt, completions + len(step.completion_token_ids)
        yield _member(number := number + 1, made)
    totals = {"total_prompt_tokens": prompts, "total_completion_tokens": completions, "total_steps": number}
    yield f'], "final_metrics": {json.dumps(totals)}}}'


def _member(number: int, step: dict[str, object]) -> str:
    return (", " if number > 1 else "") + json.dumps({**step, "step_id": number})
