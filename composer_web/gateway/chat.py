"""`POST /v1/chat/completions` and `GET /v1/models`: what OpenAI's clients speak, served by what is promoted."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from composer_web.gateway import admission, answers, outside, recording, routing, transcripts
from composer_web.gateway.errors import BadRequest, GatewayError, Unavailable
from composer_web.gateway.generating import Ask, NotDeployed, Reader, Shown, Written, generate
from composer_web.gateway.threads import beside, connected
from composer_web.gateway.wire import MAX_BODY, ChatRequest, parse
from composer_web.ops import inference
from composer_web.ops.artifacts import ArtifactError
from sandbox.harness.types import ToolCall
from trainer.inference.client import HttpInferenceClient

if TYPE_CHECKING:
    from trainer.policy.chat import ChatRenderer


class Here:
    """What the requests of one event loop share."""

    _all: WeakKeyDictionary[asyncio.AbstractEventLoop, Here] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.client: HttpInferenceClient = inference.client()
        self.deployments = routing.Deployments()

    @classmethod
    def of_this_loop(cls) -> Here:
        return cls._all.setdefault(asyncio.get_running_loop(), cls())


known = transcripts.Transcripts()


@dataclass(slots=True)
class Work:
    """One request on its way."""

    request: ChatRequest
    admitted: admission.Admitted
    asked: admission.Wishes
    envelope: answers.Envelope
    began: float
    render: ChatRenderer | None = None
    prompt: transcripts.Prompt | None = None
    """None of a policy behind an endpoint, like `render`."""

    @property
    def deadline(self) -> float:
        return self.began + self.admitted.settings.answer_seconds

    @property
    def temperature(self) -> float:
        return 1.0 if self.request.temperature is None else self.request.temperature

    @property
    def most_tokens(self) -> int:
        most = self.admitted.settings.most_tokens
        return min(self.request.most_tokens or most, most)

    @property
    def recorded(self) -> str:
        """yes, or why not."""
        if not self.asked.record:
            return "no: the request does not ask for it"
        if not self.admitted.settings.recording:
            return "no: this installation records no sessions"
        return "yes" if self.asked.session else f"no: name the session in {admission.SESSION_HEADER}"

    @property
    def salt(self) -> str:
        return f"{self.admitted.caller.token.pk}:{self.admitted.target.deployment}"


@csrf_exempt
async def chat_completions(request: HttpRequest) -> HttpResponseBase:
    """See docs/gateway.md. Raises nothing: every failure is an answer in OpenAI's shape."""
    try:
        if request.method != "POST":
            raise BadRequest(f"this address takes POST, not {request.method}", code="method_not_allowed")
        work = await _admitted(request)
        if work.admitted.target.folder is None:
            return await outside.answer(work)
        return await (_streamed(work) if work.request.stream else _whole(work))
    except GatewayError as error:
        return error.response()


@csrf_exempt
async def model_list(request: HttpRequest) -> HttpResponse:
    def read() -> list[str]:
        return routing.models(admission.authenticate(request.headers.get("authorization", "")).settings)

    try:
        names = await beside(read)
    except GatewayError as error:
        return error.response()
    rows = [{"id": name, "object": "model", "created": 0, "owned_by": "opencomposer"} for name in names]
    return JsonResponse({"object": "list", "data": rows})


@csrf_exempt
async def model_detail(request: HttpRequest, name: str) -> HttpResponse:
    def read() -> None:
        found = admission.authenticate(request.headers.get("authorization", ""))
        if name not in routing.models(found.settings):
            routing.choose(name, key="", settings=found.settings, serving=found.serving)

    try:
        await beside(read)
    except GatewayError as error:
        return error.response()
    return JsonResponse({"id": name, "object": "model", "created": 0, "owned_by": "opencomposer"})


async def _admitted(request: HttpRequest) -> Work:
    began = time.monotonic()
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > MAX_BODY:
        raise BadRequest(f"the body has {length} bytes; at most {MAX_BODY} are taken", code="body_too_large")
    wanted = parse(request.read(MAX_BODY + 1))  # not `body`, which has a bound of its own for forms
    headers = {name.lower(): value for name, value in request.headers.items()}
    asked = admission.wishes(wanted, headers)

    def admit() -> Work:
        """In one thread, because each change of threads costs time; without the connection once it is not needed."""
        with connected():
            found = admission.admit(wanted, headers.get("authorization", ""), asked)
        envelope = answers.Envelope(f"chatcmpl-{uuid.uuid4().hex}", wanted.model, found.target.served)
        work = Work(wanted, found, asked, envelope, began)
        if found.target.folder is not None:
            work.render = transcripts.renderer(found.target.folder)
            work.prompt = known.prompt(wanted, work.render, salt=work.salt, erasures=found.erasures)
        return work

    return await beside(admit)


@dataclass(slots=True)
class Started:
    """An answer whose first tokens are there."""

    prompt: transcripts.Prompt
    reader: Reader
    pieces: AsyncIterator[Written]
    first: Written


async def _start(work: Work) -> Started:
    """Raises GatewayError: whatever goes wrong before the first token is an answer with a status of its own."""
    target, here = work.admitted.target, Here.of_this_loop()
    render, prompt = work.render, work.prompt
    assert render is not None and prompt is not None, "what is behind an endpoint is asked in `outside`"
    reader = Reader(
        render,
        tools=bool(work.request.offered),
        thinking=render.syntax.thinks and str(render.tokenizer.decode(prompt.tokens[-8:])).rstrip().endswith("<think>"),
        stops=work.request.stops,
    )
    ask = Ask(
        deployment=target.deployment,
        prompt=prompt.tokens,
        most_tokens=work.most_tokens,
        temperature=work.temperature,
        top_p=work.request.top_p or 1.0,
        stops=work.request.stops,
        seed=work.request.seed,
        session=f"gateway-{work.admitted.caller.token.pk}-{work.asked.session or work.envelope.id}",
        deadline=work.deadline,
        began=work.began,
    )
    for attempt in (1, 2):
        await here.deployments.ready(target, seconds=max(0.05, work.deadline - time.monotonic()))
        pieces = generate(here.client, ask, render, stream=bool(work.request.stream))
        try:
            return Started(prompt, reader, pieces, await anext(pieces))
        except NotDeployed as error:
            here.deployments.forget(target)
            if attempt == 2:
                raise Unavailable(f"the inference server keeps losing {target.served}: {error}") from error
    raise AssertionError("not reached")


async def _whole(work: Work) -> HttpResponse:
    started = await _start(work)
    written = started.first
    async for _ in started.pieces:
        pass  # `written` grows
    shown, calls, error = started.reader.final(written, prefix=_call_prefix(work))
    said = _said(started, written, shown, calls)
    await _keep(work, started, written, said, error)
    answer = JsonResponse(work.envelope.completion(said))
    answer["X-OpenComposer-Recorded"] = work.recorded
    return answer


async def _streamed(work: Work) -> StreamingHttpResponse:
    started = await _start(work)
    answer = StreamingHttpResponse(_events(work, started), content_type="text/event-stream")
    answer["Cache-Control"], answer["X-Accel-Buffering"] = "no-cache", "no"
    answer["X-OpenComposer-Recorded"] = work.recorded
    return answer


async def _events(work: Work, started: Started) -> AsyncIterator[bytes]:
    envelope, sent, written = work.envelope, Shown("", ""), started.first
    yield envelope.opening()
    try:
        async for delta, now in _growing(started):
            written, sent = now, _joined(sent, delta)
            for part in _deltas(envelope, delta):
                yield part
        shown, calls, error = started.reader.final(written, prefix=_call_prefix(work))
        said = _said(started, written, shown, calls)
        await _keep(work, started, written, said, error)
    except GatewayError as failure:
        yield answers.event(failure.body())
        return
    for part in _deltas(envelope, _rest(sent, shown)):
        yield part
    if calls:
        yield envelope.calls(calls)
    yield envelope.chunk({}, said.finish)
    if work.request.stream_options is not None and work.request.stream_options.include_usage:
        yield envelope.usage(said.usage)
    yield answers.DONE


async def _growing(started: Started) -> AsyncIterator[tuple[Shown, Written]]:
    """What each piece adds to what is shown."""
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


def _deltas(envelope: answers.Envelope, delta: Shown) -> list[bytes]:
    found = []
    if delta.reasoning:
        found.append(envelope.chunk({"reasoning_content": delta.reasoning}))
    if delta.text:
        found.append(envelope.chunk({"content": delta.text}))
    return found


def _call_prefix(work: Work) -> str:
    return f"call_{work.envelope.id[-12:]}"


def _said(started: Started, written: Written, shown: Shown, calls: tuple[ToolCall, ...]) -> answers.Said:
    usage = answers.Usage(len(started.prompt.tokens), len(written.token_ids), written.reused)
    finish = "tool_calls" if calls else written.finish
    return answers.Said(shown.text, calls, finish, usage, shown.reasoning)


async def _keep(work: Work, started: Started, written: Written, said: answers.Said, error: str | None) -> None:
    """Remember the conversation, and record it where that was asked for. Raises Unavailable."""
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
            read_tokens=said.usage.read,
            written_tokens=said.usage.written,
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
    key = transcripts.digest([*work.request.messages, answer], work.request.offered, work.salt)
    found = replace(done, tokens=tokens) if done else transcripts.Known(tokens)
    known.remember(key, found, erasures=work.admitted.erasures)
