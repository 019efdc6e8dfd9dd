"""Responses of a policy behind an endpoint, forwarded unchanged and unstreamed. They have no tokens to train on."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from django.http import HttpResponseBase, JsonResponse, StreamingHttpResponse

from composer_web.core.artifacts import ArtifactError
from composer_web.core.errors import UserError
from composer_web.gateway.errors import BadRequest, Unavailable
from composer_web.gateway.serving import recording, responses, transcripts
from composer_web.gateway.serving.routing import endpoint_of
from composer_web.gateway.serving.threads import beside
from composer_web.policies import endpoints
from trainer.inference.chat import ChatClient, ChatReply, TranscriptTooLong
from trainer.inference.contract import InferenceError, InferenceRefused

if TYPE_CHECKING:
    from composer_web.gateway.serving.pipeline import Work

FINISHES = frozenset({"stop", "length", "tool_calls"})


async def answer(work: Work) -> HttpResponseBase:
    """Raises BadRequest, Unavailable."""
    reply = await _asked(work)
    finish = "tool_calls" if reply.calls else reply.finish if reply.finish in FINISHES else "stop"
    usage = responses.Usage(reply.counted.read, reply.counted.written, reply.counted.cached)
    said = responses.Said(reply.text, reply.calls, finish, usage)
    if work.recorded == "yes":
        await _record(work, reply, said)
    if not work.request.stream:
        found: HttpResponseBase = await asyncio.to_thread(JsonResponse, work.envelope.completion(said))
    else:
        parts = [work.envelope.opening()]
        parts += [work.envelope.chunk({"content": said.text})] if said.text else []
        parts += [work.envelope.calls(said.calls)] if said.calls else []
        parts.append(work.envelope.chunk({}, said.finish))
        if work.request.stream_options is not None and work.request.stream_options.include_usage:
            parts.append(work.envelope.usage(usage))

        async def events():  # type: ignore[no-untyped-def]
            for part in [*parts, responses.DONE]:
                yield part

        found = StreamingHttpResponse(events(), content_type="text/event-stream")
    found["X-OpenComposer-Recorded"] = work.recorded
    return found


async def _asked(work: Work) -> ChatReply:
    messages = await asyncio.to_thread(_messages, work)
    try:
        row = await beside(endpoint_of, work.admitted.target)
        where = await beside(endpoints.asked, row)
        async with ChatClient(where) as client:
            return await client.ask(
                messages,
                work.request.offered,
                max_tokens=work.most_tokens,
                temperature=work.temperature,
                seconds=max(0.05, work.deadline - time.monotonic()),
            )
    except TranscriptTooLong as error:
        raise BadRequest(str(error), param="messages", code="context_length_exceeded") from error
    except InferenceRefused as error:
        raise BadRequest(str(error), code="endpoint_refuses") from error
    except InferenceError as error:
        raise Unavailable(str(error)) from error
    except UserError as error:
        raise Unavailable(f"the endpoint cannot be asked: {error.message}") from error


def _messages(work: Work) -> list[dict[str, Any]]:
    """Messages as JSON: megabytes, which must not be written on the event loop."""
    return [message.model_dump(mode="json", exclude_none=True) for message in work.request.messages]


async def _record(work: Work, reply: ChatReply, said: responses.Said) -> None:
    milliseconds = 1000 * (time.monotonic() - work.began)
    exchange = recording.Exchange(
        request=work.request,
        admitted=work.admitted,
        asked=work.asked,
        answer=transcripts.answered(said.text, said.calls),
        calls=said.calls,
        error=reply.error,
        finish=said.finish,
        input_tokens=said.usage.read,
        output_tokens=said.usage.written,
        first_token_ms=milliseconds,
        total_ms=milliseconds,
        temperature=work.temperature,
    )
    try:
        await beside(recording.record, exchange)
    except ArtifactError as error:
        raise Unavailable(f"the session cannot be recorded: {error}") from error
