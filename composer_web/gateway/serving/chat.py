"""`POST /v1/chat/completions` and `GET /v1/models`: the OpenAI-compatible API for promoted policies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from composer_web.core.artifacts import ArtifactError
from composer_web.gateway.errors import BadRequest, GatewayError, Unavailable
from composer_web.gateway.serving import admission, pipeline, proxy, recording, responses, routing, transcripts
from composer_web.gateway.serving.generating import NotDeployed, Shown, Written
from composer_web.gateway.serving.pipeline import Started, Work, begin, read
from composer_web.gateway.serving.threads import beside
from sandbox.harness.types import ToolCall

SHORT_ANSWER = 64
"""Maximum tokens of an answer without tools that is parsed on the event loop: it takes less time than a change of
threads. Schemas of tools may be long."""


@csrf_exempt
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    """See docs/design/gateway.md. Raises nothing: every error becomes a response in OpenAI's format."""
    try:
        if request.method != "POST":
            raise BadRequest(f"this address takes POST, not {request.method}", code="method_not_allowed")
        work, started = await begin(read(request))
        if started is None:
            return await proxy.answer(work)
        return _streamed(work, started) if work.request.stream else await _whole(work, started)
    except GatewayError as error:
        return error.response()


@csrf_exempt
async def model_list(request: HttpRequest) -> HttpResponse:
    def names_there() -> list[str]:
        return routing.models(admission.authenticate(request.headers.get("authorization", "")).settings)

    try:
        names = await beside(names_there)
    except GatewayError as error:
        return error.response()
    rows = [{"id": name, "object": "model", "created": 0, "owned_by": "opencomposer"} for name in names]
    return JsonResponse({"object": "list", "data": rows})


@csrf_exempt
async def model_detail(request: HttpRequest, name: str) -> HttpResponse:
    def look() -> None:
        found = admission.authenticate(request.headers.get("authorization", ""))
        if name not in routing.models(found.settings):
            routing.choose(name, key="", settings=found.settings, serving=found.serving)

    try:
        await beside(look)
    except GatewayError as error:
        return error.response()
    return JsonResponse({"id": name, "object": "model", "created": 0, "owned_by": "opencomposer"})


async def _whole(work: Work, started: Started) -> HttpResponse:
    written = started.first
    async for _ in started.pieces:
        pass  # `written` grows
    shown, calls, error = await _final(work, started, written)
    said = _said(started, written, shown, calls)
    await _keep(work, started, written, said, error)
    answer = JsonResponse(work.envelope.completion(said))
    _describe(answer, work, written)
    return answer


def _streamed(work: Work, started: Started) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(_events(work, started), content_type="text/event-stream")
    answer["Cache-Control"], answer["X-Accel-Buffering"] = "no-cache", "no"
    _describe(answer, work, started.first)
    return answer


def _describe(answer: HttpResponseBase, work: Work, written: Written) -> None:
    """Add headers with timings so far (for a stream, until its first token) and whether the session is recorded."""
    engine = 1000 * written.engine
    rest = 1000 * (time.monotonic() - work.began) - engine
    answer["Server-Timing"] = f"engine;dur={engine:.2f}, gateway;dur={rest:.2f}"
    answer["X-OpenComposer-Recorded"] = work.recorded


async def _events(work: Work, started: Started) -> AsyncIterator[bytes]:
    envelope, sent, written = work.envelope, Shown("", ""), started.first
    yield envelope.opening()
    try:
        async for delta, now in _growing(started):
            written, sent = now, _joined(sent, delta)
            if part := _deltas(envelope, delta):
                yield part
        shown, calls, error = await _final(work, started, written)
        said = _said(started, written, shown, calls)
        await _keep(work, started, written, said, error)
    except GatewayError as failure:
        yield responses.event(failure.body())
        return
    end = [_deltas(envelope, _rest(sent, shown))]
    if calls:
        end.append(envelope.calls(calls))
    end.append(envelope.chunk({}, said.finish))
    if work.request.stream_options is not None and work.request.stream_options.include_usage:
        end.append(envelope.usage(said.usage))
    yield b"".join([*end, responses.DONE])  # in one packet: each wakes the client


async def _growing(started: Started) -> AsyncIterator[tuple[Shown, Written]]:
    """Increments of the shown text per piece."""
    sent = Shown("", "")
    written = started.first
    while True:
        shown = started.reader.partial(written.token_ids)
        yield _rest(sent, shown), written
        sent = shown
        try:
            written = await anext(started.pieces)
        except StopAsyncIteration:
            return
        except NotDeployed as error:
            raise Unavailable(f"the inference server lost the policy in the middle of an answer: {error}") from error


def _rest(sent: Shown, shown: Shown) -> Shown:
    return Shown(shown.reasoning[len(sent.reasoning) :], shown.text[len(sent.text) :])


def _joined(sent: Shown, delta: Shown) -> Shown:
    return Shown(sent.reasoning + delta.reasoning, sent.text + delta.text)


def _deltas(envelope: responses.Envelope, delta: Shown) -> bytes:
    reasoning = envelope.chunk({"reasoning_content": delta.reasoning}) if delta.reasoning else b""
    return reasoning + (envelope.chunk({"content": delta.text}) if delta.text else b"")


async def _final(work: Work, started: Started, written: Written) -> tuple[Shown, tuple[ToolCall, ...], str | None]:
    prefix = _call_prefix(work)
    if len(written.token_ids) <= SHORT_ANSWER and not started.reader.offered:
        return started.reader.final(written, prefix=prefix)
    return await asyncio.to_thread(started.reader.final, written, prefix=prefix)


def _call_prefix(work: Work) -> str:
    return f"call_{work.envelope.id[-12:]}"


def _said(started: Started, written: Written, shown: Shown, calls: tuple[ToolCall, ...]) -> responses.Said:
    usage = responses.Usage(len(started.prompt.tokens), len(written.token_ids), written.reused)
    finish = "tool_calls" if calls else written.finish
    return responses.Said(shown.text, calls, finish, usage, shown.reasoning)


async def _keep(work: Work, started: Started, written: Written, said: responses.Said, error: str | None) -> None:
    """Remember the conversation, and record it if requested. Raises Unavailable."""
    answer = transcripts.answered(said.text, said.calls)
    done: transcripts.Known | None = None
    if work.recorded == "yes":
        exchange = recording.Exchange(
            request=work.request,
            admitted=work.admitted,
            asked=work.asked,
            answer=answer,
            calls=said.calls,
            error=error,
            finish=said.finish,
            input_tokens=said.usage.read,
            output_tokens=said.usage.written,
            first_token_ms=1000 * (written.first_token or 0.0),
            total_ms=1000 * (time.monotonic() - work.began),
            temperature=work.temperature,
            prompt=started.prompt,
            written=written,
            render=started.reader.render,
        )
        try:
            done = await beside(recording.record, exchange)
        except ArtifactError as problem:
            raise Unavailable(f"the session cannot be recorded: {problem}") from problem
    if work.request.stops and written.finish == "stop" and written.token_ids[-1] not in started.reader.render.stop_ids:
        return  # what is shown was cut within what was sampled: nothing goes on from it
    tokens = (*started.prompt.tokens, *written.token_ids)
    assert started.prompt.prefixes is not None, "a prompt of ours has the digests of its messages"
    key = started.prompt.prefixes.followed_by(answer)
    found = replace(done, tokens=tokens) if done else transcripts.Known(tokens, sampled=len(written.token_ids))
    pipeline.known.remember(key, found, erasures=work.admitted.erasures)
