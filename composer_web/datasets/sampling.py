"""Rollouts as conversations: the sampled tokens, and their text for policies with another tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from composer_web.core.artifacts import ArtifactError
from composer_web.datasets.choosing import SOURCE
from composer_web.policies.models import Policy
from composer_web.policies.services import real_path
from composer_web.rollouts import selectors
from sandbox.harness.session import profile_of_schema, schemas_of
from sandbox.harness.types import ToolCall
from trainer.sft.conversations.conversation import Conversation, Message, Unfit, Window
from trainer.sft.conversations.fingerprint import fingerprint
from trainer.sft.conversations.readers import said
from trainer.types import Segment, Trajectory, Turn


def conversations_of(ids: list[int]) -> Iterator[Conversation | Unfit]:
    """One after the other, a trajectory in memory at a time."""
    for pk in ids:
        rollout = selectors.rollouts().select_related("group__run__policy_in", "group__evaluation__policy").get(pk=pk)
        place = f"rollout {pk}"
        try:
            yield conversation_of(selectors.trajectory(rollout), _tokenizer(selectors.policy_of(rollout.group)), place)
        except (ArtifactError, selectors.TrajectoryDeleted) as error:
            yield Unfit(source=SOURCE, place=place, reason="not recorded", detail=str(error)[:200])
        except ValidationError as error:
            detail = error.errors(include_url=False, include_input=False)[0]["msg"].removeprefix("Value error, ")
            yield Unfit(source=SOURCE, place=place, reason="no conversation", detail=detail[:200])


def conversation_of(trajectory: Trajectory, tokenizer: str, place: str) -> Conversation:
    """Raises ValidationError: the policy said nothing that can be learned."""
    messages = [_opening(message) for message in trajectory.messages]
    whole = len(trajectory.segments) <= 1
    for turn in trajectory.turns:
        # The transcript shows no call for the answer to one that did not parse: only the tokens do.
        whole &= {result.call_id for result in turn.results} <= {call.id for call in turn.calls} and not turn.summary
        messages += _turn(turn, trajectory)
    profile = profile_of_schema(trajectory.tool_schema_hash)
    return Conversation(
        source=SOURCE,
        place=place,
        messages=tuple(messages),
        tools=tuple(schemas_of(profile)) if profile else (),
        task=trajectory.task_id,
        bundle_hash=trajectory.bundle_hash,
        windows=tuple(_window(index, segment, trajectory) for index, segment in enumerate(trajectory.segments))
        if tokenizer
        else (),
        tokenizer=tokenizer,
        whole=whole and profile is not None,
    )


def _opening(message: dict[str, Any]) -> Message:
    content = message.get("content", "")
    return Message(
        role="system" if message.get("role") == "system" else "user",
        content=content if isinstance(content, str) else json.dumps(content),
    )


def _turn(turn: Turn, trajectory: Trajectory) -> Iterator[Message]:
    calls = tuple(_numbered(call, turn.index) for call in turn.calls)
    yield said(turn.text, calls, train=_imitated(turn, trajectory))
    known = {call.id for call in turn.calls}
    for result in turn.results:
        if result.call_id in known:
            yield Message(role="tool", content=result.output, call_id=f"{turn.index}:{result.call_id}")
    if turn.asked:
        yield Message(role="user", content=turn.asked)


def _numbered(call: ToolCall, turn: int) -> ToolCall:
    """Ids of calls begin anew with each turn."""
    return call.model_copy(update={"id": f"{turn}:{call.id}"})


def _imitated(turn: Turn, trajectory: Trajectory) -> bool:
    """Not what failed, and not what was read and not sampled (the turns before a fork)."""
    if any(result.error for result in turn.results):
        return False
    if turn.segment >= len(trajectory.segments):
        return True
    return any(trajectory.segments[turn.segment].loss_mask[turn.token_start : turn.token_end])


def _window(index: int, segment: Segment, trajectory: Trajectory) -> Window:
    mask = list(segment.loss_mask)
    for turn in trajectory.turns:
        if turn.segment == index and not _imitated(turn, trajectory):
            mask[turn.token_start : turn.token_end] = [0] * (turn.token_end - turn.token_start)
    return Window(tokens=segment.tokens, loss_mask=mask)


def _tokenizer(policy: Policy) -> str:
    """Fingerprint of what its rollouts were written in; empty where its folder is not on this machine."""
    try:
        return fingerprint(real_path(policy.base_dir)) if policy.base_dir else ""
    except OSError:
        return ""
