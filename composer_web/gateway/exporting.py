"""Serialises recorded sessions as JSON lines of our own records, and as ATIF with the same code as other
trajectories."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from composer_web.gateway.configuration import Settings, settings_of
from composer_web.gateway.models import Session
from composer_web.gateway.selectors import ShownTurn, mean_reward, shown, signals_of
from composer_web.ui.table_writers import Row, line
from sandbox.tasks.formats import atif
from sandbox.tasks.formats.record import Call, Opening, Record, Result, Step


def jsonl(sessions: Iterable[Session]) -> Iterator[str]:
    """One line per session. Raises ArtifactError."""
    configured = functools.cache(settings_of)
    for session in sessions:
        yield line(document(session, configured(session.channel)))


def document(session: Session, configured: Settings | None = None) -> Row:
    """The complete recording, with reward components and signals."""
    turns = shown(session, configured)
    return {
        "id": session.pk,
        "client_id": session.client_id,
        "policy": session.policy.at(session.version),
        "canary": session.canary,
        "opened_at": session.opened_at,
        "reward": mean_reward(turns),
        "signals": [signal.model_dump() for signal in signals_of(session)],
        "turns": [
            {
                **one.turn.model_dump(mode="json"),
                "reward": one.reward,
                "reward_parts": [part.model_dump(include={"name", "value", "weight"}) for part in one.parts],
            }
            for one in turns
        ],
    }


def as_atif(session: Session) -> dict[str, Any]:
    """Newest transcript of the session as an ATIF document. Raises ArtifactError."""
    turns = shown(session)
    steps = [
        _step(one, turns[place + 1].turn.messages if place + 1 < len(turns) else []) for place, one in enumerate(turns)
    ]
    first = turns[0].turn.messages if turns else []
    record = Record(
        id=f"session-{session.pk}",
        task="",
        model=session.policy.at(session.version),
        agent="gateway",
        agent_version="1",
        opening=tuple(
            Opening(role="system" if message["role"] in ("system", "developer") else "user", content=_text(message))
            for message in first
            if message["role"] in ("system", "developer", "user")
        ),
        steps=tuple(steps),
        reward=mean_reward(turns),
        extra={"signals": [signal.model_dump() for signal in signals_of(session)]},
    )
    return atif.export(record)[0]


def _step(one: ShownTurn, following: list[dict[str, Any]]) -> Step:
    turn = one.turn
    known = {call["id"] for call in turn.calls}
    results = [
        Result(call_id=str(message.get("tool_call_id", "")), content=_text(message))
        for message in following
        if message["role"] == "tool" and message.get("tool_call_id") in known
    ]
    return Step(
        content=turn.text,
        calls=tuple(
            Call(id=call["id"], name=call["name"], arguments=json.dumps(call["arguments"], ensure_ascii=False))
            for call in turn.calls
        ),
        results=tuple(results),
        prompt_token_ids=tuple(turn.prompt_ids),
        completion_token_ids=tuple(turn.token_ids),
        logprobs=tuple(turn.logprobs),
        seconds=turn.total_ms / 1000,
    )


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)
