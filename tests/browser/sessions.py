"""Recorded sessions for the small world: one that was liked, one with a broken call, hostile words."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.gateway import configuration
from composer_web.gateway.models import Session, SessionTurn, SignalRow
from composer_web.policies.models import Policy
from trainer.realtime.reading import TurnFacts
from trainer.realtime.sessions import RecordedTurn

EDIT = {"id": "c1", "name": "edit_file", "arguments": {"path": "scale.py", "old_string": "+ by", "new_string": "* by"}}


def recorded(people: dict[str, User], *, hostile: str) -> None:
    configuration.change(values={"recording": True}, actor=people["operator"])
    policy = Policy.objects.get(name="base")
    for number, (asks, text, facts, kind) in enumerate(
        [
            ("scale() adds where it should multiply", "I mend the operator.", TurnFacts(calls=1, edits=1), "accept"),
            (
                f"What does {hostile} do?",
                hostile,
                TurnFacts(malformed="the tool call is not complete JSON"),
                "dissatisfied",
            ),
            ("Make it faster", "Which function do you mean?", TurnFacts(question=True), "reject"),
        ]
    ):
        session = Session.objects.create(
            channel="production",
            owner=people["viewer"],
            client_id=f"session-{number}",
            subject="0" * 64,
            policy=policy,
            version=0,
            oldest_version=0,
            canary=number == 2,
            turns=1,
            output_tokens=12,
            edits=int(facts.edits > 0),
            questions=int(facts.question),
            malformed=int(bool(facts.malformed)),
            opening=asks[:300],
            expires_at=timezone.now() + timedelta(days=30),
        )
        turn = RecordedTurn(
            index=0,
            messages=[{"role": "system", "content": "You are a coding agent."}, {"role": "user", "content": asks}],
            tools=["edit_file"],
            prompt_ids=[1, 2],
            token_ids=list(range(12)),
            logprobs=[-0.2] * 12,
            loss_mask=[1] * 12,
            versions=[0] * 12,
            text=text,
            calls=[EDIT] if facts.edits else [],
            facts=facts,
            first_token_ms=31.0,
            total_ms=420.0,
        )
        key = f"sessions/{session.pk}/0.json.zst"
        artifacts().put_model(key, turn)
        SessionTurn.objects.create(
            session=session,
            index=0,
            policy=policy,
            version=0,
            facts=facts.model_dump(),
            finish="stop",
            artifact_key=key,
        )
        SignalRow.objects.create(session=session, client_id="1", kind=kind, turn=0)
        if facts.edits:
            SignalRow.objects.create(session=session, client_id="2", kind="edit_kept", value=0.8, after="30 minutes")


def in_use(
    owner: User, policy: Policy, version: int, count: int, facts: dict[str, Any], *, wait: float = 30.0, said: str = ""
) -> list[Session]:
    """Recorded sessions of one turn that a version answered so; their texts are nowhere."""
    made = []
    for _ in range(count):
        session = Session.objects.create(
            channel="production",
            owner=owner,
            client_id=f"in-use-{uuid.uuid4()}",
            policy=policy,
            version=version,
            oldest_version=version,
            turns=1,
            expires_at=timezone.now() + timedelta(days=30),
        )
        SessionTurn.objects.create(
            session=session,
            index=0,
            policy=policy,
            version=version,
            facts=facts,
            finish="stop",
            first_token_ms=wait,
            artifact_key="",
        )
        if said:
            SignalRow.objects.create(session=session, client_id="1", kind=said, turn=0)
        made.append(session)
    return made
