"""Writes of recorded sessions: record a turn, end a session, and delete all data of a user."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from composer_web.accounts.models import DEFAULT_PROJECT, User
from composer_web.accounts.permissions import reach
from composer_web.accounts.services import audit
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import UserError
from composer_web.gateway.configuration import void_memories
from composer_web.gateway.export_links import void
from composer_web.gateway.models import Session, SessionTurn
from composer_web.gateway.redaction import Redactor, redactor
from composer_web.gateway.serving.admission import Admitted, Wishes
from composer_web.gateway.serving.generating import Written
from composer_web.gateway.serving.openai_types import ChatRequest, Message
from composer_web.gateway.serving.transcripts import Known, Prompt, digest
from composer_web.live.hints import hint
from composer_web.policies.promotion.services import CHANNEL
from sandbox.harness.types import ToolCall
from trainer.realtime.reading import facts_of
from trainer.realtime.sessions import RecordedTurn
from trainer.routed_experts import joined

if TYPE_CHECKING:
    from trainer.policy.rendering.chat import ChatRenderer

FOLDER = "sessions"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response before redaction. Behind an endpoint, there are no tokens."""

    request: ChatRequest
    admitted: Admitted
    asked: Wishes
    answer: Message
    calls: tuple[ToolCall, ...]
    error: str | None
    finish: str
    input_tokens: int
    output_tokens: int
    first_token_ms: float
    total_ms: float
    temperature: float
    prompt: Prompt | None = None
    written: Written | None = None
    render: ChatRenderer | None = None


def subject_of(user: str) -> str:
    """Keyed digest of an end user. Empty without a user."""
    return _digest_of(user, django_settings.SECRET_KEY) if user else ""


def subjects_of(user: str) -> list[str]:
    """Every digest under which an end user's sessions may be stored: the newest secret key's first, then each
    fallback's."""
    return [_digest_of(user, key) for key in (django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS)]


def _digest_of(user: str, secret: str) -> str:
    key = hashlib.sha256(f"opencomposer sessions {secret}".encode()).digest()
    return hmac.new(key, user.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


@transaction.atomic
def record(exchange: Exchange) -> Known | None:
    """Store one turn, redacted; returns what the next turn may go on from. Raises ArtifactError.

    The blob is written before the row that names it; a blob without a row is removed with its session.
    """
    target, asked, settings = exchange.admitted.target, exchange.asked, exchange.admitted.settings
    clean = redactor(settings.patterns)
    now = timezone.now()
    caller = exchange.admitted.caller
    places = reach(caller.user)
    project = caller.token.project_id or (places[0]["id"] if places else DEFAULT_PROJECT)
    fresh = {
        "channel": CHANNEL,
        "subject": subject_of(asked.user),
        "policy_id": target.policy_id,
        "version": target.version,
        "oldest_version": target.version,
        "canary": target.canary,
        "opening": clean.text(_opening(exchange.request))[0][:300],
        "expires_at": now + timedelta(days=settings.retention_days),
    }
    owner = caller.user
    made, _ = Session.objects.get_or_create(owner=owner, client_id=asked.session, project_id=project, defaults=fresh)
    session = Session.objects.select_for_update().get(pk=made.pk)
    turn, redactions = _turn(exchange, session, clean)
    key = f"{FOLDER}/{session.pk}/{turn.index}.json.zst"
    artifacts().put_model(key, turn)
    SessionTurn.objects.create(
        session=session,
        index=turn.index,
        policy_id=target.policy_id,
        version=target.version,
        facts=turn.facts.model_dump(),
        finish=turn.finish,
        input_tokens=exchange.input_tokens,
        output_tokens=exchange.output_tokens,
        first_token_ms=turn.first_token_ms,
        total_ms=turn.total_ms,
        artifact_key=key,
    )
    said = [*exchange.request.messages, exchange.answer]
    session.seen, session.seen_digest = len(said), digest(said, [], "")
    session.oldest_version = min(session.oldest_version, target.version) if session.turns else target.version
    if session.policy_id != target.policy_id:
        session.oldest_version = target.version
    session.policy_id, session.canary = target.policy_id, target.canary
    session.version = max(target.version, session.oldest_version)
    session.turns = turn.index + 1
    session.output_tokens += exchange.output_tokens
    session.edits += turn.facts.edits > 0
    session.questions += turn.facts.question
    session.malformed += bool(turn.facts.malformed)
    session.redactions += redactions
    session.expires_at = now + timedelta(days=settings.retention_days)
    session.save()
    if target.canary:
        hint("promotion")
    if exchange.prompt is None or exchange.written is None:
        return None
    answer = exchange.written.token_ids
    return Known(
        (*exchange.prompt.tokens, *answer),
        str(session.pk),
        turn.index,
        len(answer),
        client_session=asked.session,
        experts=turn.experts.stop if turn.experts else 0,
    )


def _opening(request: ChatRequest) -> str:
    """Remove NUL characters, which Postgres text cannot store."""
    first = next((message.text for message in request.messages if message.role == "user"), "")
    return " ".join(first.replace("\0", " ").split())[:2000]


def _turn(exchange: Exchange, session: Session, clean: Redactor) -> tuple[RecordedTurn, int]:
    """The redacted turn, and the number of redactions."""
    request, known = exchange.request, session.seen
    goes_on = 0 < known <= len(request.messages) and digest(request.messages[:known], [], "") == session.seen_digest
    since = known if goes_on else 0
    whole = [message.model_dump(mode="json", exclude_none=True) for message in request.messages]
    messages, count = clean.value(whole[since:])
    text, more = clean.text(exchange.answer.text)
    calls, also = clean.value([call.model_dump(mode="json") for call in exchange.calls])
    facts = facts_of(
        text=text,
        calls=exchange.calls,
        error=clean.text(exchange.error)[0].replace("\0", " ") if exchange.error else None,
        tools=request.offered,
        edit_tools=exchange.admitted.settings.edit_tools,
    )
    secret = clean.matches([whole, exchange.answer.text, [call.model_dump(mode="json") for call in exchange.calls]])
    streams, gone = _streams(exchange, session, clean, secret)
    turn = RecordedTurn(
        index=session.turns,
        since=since,
        messages=messages,
        tools=[tool["function"]["name"] for tool in request.offered],
        temperature=exchange.temperature,
        top_p=request.top_p or 1.0,
        text=text,
        calls=calls,
        facts=facts,
        finish=exchange.finish,
        redacted_tokens=gone,
        first_token_ms=exchange.first_token_ms,
        total_ms=exchange.total_ms,
        **streams,
    )
    return turn, count + more + also


def _streams(exchange: Exchange, session: Session, clean: Redactor, secret: set[str]) -> tuple[dict[str, Any], int]:
    prompt, written, render = exchange.prompt, exchange.written, exchange.render
    if prompt is None or written is None or render is None:
        return {}, 0
    base = prompt.base.turn if prompt.base is not None and prompt.base.session == str(session.pk) else None
    read, read_gone = clean.tokens(prompt.fresh if base is not None else prompt.tokens, render, secret)
    wrote, wrote_gone = clean.tokens(written.token_ids, render, secret)
    return {
        "base": base,
        "prompt_ids": read,
        "token_ids": wrote,
        "logprobs": written.logprobs,
        "loss_mask": [0 if place in wrote_gone else 1 for place in range(len(wrote))],
        "versions": [exchange.admitted.target.version] * len(wrote),
        "experts": joined(written.experts, len(prompt.tokens) + len(wrote) - 1),
    }, len(read_gone) + len(wrote_gone)


# --- deletion ---------------------------------------------------------------------------------------------------


def erase(*, user: str, actor: User | None = None) -> int:
    """Delete every session of an end user, with turns, signals and blobs. Returns the number of sessions. The audit
    entry contains only the digest and that number. Raises UserError."""
    if not user:
        raise UserError("user", "name the user as the client does in its requests")
    subject = subject_of(user)
    count = _delete(Session.objects.filter(subject__in=subjects_of(user)), why="a user's data was deleted", actor=actor)
    if not count:  # nothing was recorded, and still a conversation may be remembered
        void_memories()
    audit(actor=actor, action="session.erase", target=f"subject:{subject[:16]}", sessions=count)
    return count


def delete(*, session: Session, actor: User | None = None) -> None:
    """Delete one session with everything that belongs to it."""
    pk = session.pk
    _delete(Session.objects.filter(pk=pk), why="a session in it was deleted", actor=actor)
    audit(actor=actor, action="session.delete", target=f"session:{pk}")


def expire() -> int:
    """Delete sessions past their retention period. Returns the number of sessions."""
    return _delete(Session.objects.filter(expires_at__lte=timezone.now()), why="the days of a session in it were over")


@transaction.atomic
def _delete(found: QuerySet[Session], *, why: str, actor: User | None = None) -> int:
    """Delete sessions and void every export file that contains one of them; `why` is shown as the reason."""
    ids = list(found.select_for_update().values_list("pk", flat=True))
    void(ids, why=why, actor=actor)
    with connection.cursor() as cursor:  # signals are append-only except here
        cursor.execute("SELECT set_config('opencomposer.erasing', 'on', true)")
    Session.objects.filter(pk__in=ids).delete()
    if ids:
        void_memories()
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('opencomposer.erasing', '', true)")

    def remove_blobs() -> None:
        for pk in ids:
            artifacts().remove_tree(f"{FOLDER}/{pk}")

    transaction.on_commit(remove_blobs, robust=True)
    return len(ids)


def turns_of(session: Session) -> list[RecordedTurn]:
    """All recorded turns in order. Raises ArtifactError."""
    return [artifacts().get_model(row.artifact_key, RecordedTurn) for row in session.recorded.all()]
