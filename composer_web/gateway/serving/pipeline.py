"""From a request to its first token: authentication, routing, prompt, and the engine request.

Querying Postgres and Valkey for the token, the promotion and the rate limit takes as long as an engine takes for a
short prompt. The engine request therefore starts concurrently, with the admission of the token's last request. Nothing
is sent to the client before both have completed; after a wrong guess, the work is cancelled and restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from django.http import HttpRequest

from composer_web.core import inference
from composer_web.gateway.errors import BadRequest, GatewayError, Unavailable
from composer_web.gateway.serving import admission, responses, routing, transcripts
from composer_web.gateway.serving.generating import Ask, NotDeployed, Reader, Written, generate
from composer_web.gateway.serving.openai_types import MAX_BODY, ChatRequest, parse
from composer_web.gateway.serving.preparation import Preparation
from composer_web.gateway.serving.threads import beside, connected
from composer_web.policies.selectors import cannot_play
from trainer.inference.client import HttpInferenceClient

if TYPE_CHECKING:
    from trainer.policy.rendering.chat import ChatRenderer

SHORT = 8 << 10
"""Maximum bytes of a body that is prepared on the event loop, within a few milliseconds. Longer ones are prepared in
a separate thread."""
HEADERS = {
    name.lower(): f"HTTP_{name.upper().replace('-', '_')}"
    for name in ("Authorization", admission.SESSION_HEADER, admission.RECORD_HEADER)
}
"""Headers that are read, with their keys in `HttpRequest.META`. Django's view of all headers costs as much as parsing
a short body."""
TURNS = 3
"""Event loop iterations until a request to the engine has been sent; threads would compete with it for the
interpreter."""


class Here:
    """State shared by the requests of one event loop."""

    by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Here] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.client: HttpInferenceClient = inference.client()
        self.preparation = Preparation()
        self.deployments = routing.Deployments()

    @classmethod
    def of_this_loop(cls) -> Here:
        loop = asyncio.get_running_loop()
        found = cls.by_loop.get(loop)
        if found is None:
            found = cls.by_loop[loop] = cls()
        return found


known = transcripts.Transcripts()


@dataclass(slots=True)
class Work:
    """One request in progress."""

    request: ChatRequest
    admitted: admission.Admitted
    asked: admission.Wishes
    envelope: responses.Envelope
    began: float
    render: ChatRenderer | None = None
    prompt: transcripts.Prompt | None = None
    """None for a policy behind an endpoint, like `render`."""

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
        """ "yes", or the reason why not."""
        if not self.asked.record:
            return "no: the request does not ask for it"
        if not self.admitted.settings.recording:
            return "no: this installation records no sessions"
        return "yes" if self.asked.session else f"no: name the session in {admission.SESSION_HEADER}"

    @property
    def salt(self) -> str:
        return f"{self.admitted.caller.token.pk}:{self.admitted.target.deployment}"


@dataclass(frozen=True, slots=True)
class Received:
    """A request with an unparsed body."""

    body: bytes
    headers: Mapping[str, str]
    """Those of `HEADERS`, with names in lower case."""
    began: float
    """Monotonic clock."""

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")

    def parsed(self) -> Came:
        """Raises BadRequest."""
        wanted = parse(self.body)
        return Came(wanted, admission.wishes(wanted, self.headers), self.authorization, self.began)


@dataclass(frozen=True, slots=True)
class Came:
    """A parsed request before admission."""

    request: ChatRequest
    asked: admission.Wishes
    authorization: str
    began: float

    def work(self, admitted: admission.Admitted, loaded: transcripts.Loaded | None = None) -> Work:
        """Work with its prompt if one of our policies answers. `loaded` if it was looked up already. Raises BadRequest,
        Unavailable."""
        folder = admitted.target.folder
        envelope = responses.Envelope(f"chatcmpl-{uuid.uuid4().hex}", self.request.model, admitted.target.served)
        work = Work(self.request, admitted, self.asked, envelope, self.began)
        if folder is not None:
            loaded = loaded or transcripts.load(folder)
            work.render = loaded.render
            if loaded.template_problem and self.request.offered:
                raise Unavailable(cannot_play(admitted.target.name, loaded.template_problem))
            work.prompt = known.prompt(
                self.request,
                work.render,
                salt=work.salt,
                context=loaded.context,
                erasures=admitted.erasures,
            )
        return work


def read(request: HttpRequest) -> Received:
    """Raises BadRequest if the body is too long."""
    began = time.monotonic()
    length = request.META.get("CONTENT_LENGTH", "")
    if length.isdecimal() and int(length) > MAX_BODY:
        raise BadRequest(f"the body has {length} bytes; at most {MAX_BODY} are taken", code="body_too_large")
    body = request.read(MAX_BODY + 1)  # not `body`, which has a bound of its own for forms
    if len(body) > MAX_BODY:
        raise BadRequest(f"the body has more than {MAX_BODY} bytes", code="body_too_large")
    headers = {name: request.META[key] for name, key in HEADERS.items() if key in request.META}
    return Received(body, headers, began)


async def begin(received: Received) -> tuple[Work, Started | None]:
    """First tokens of the response; None for a policy behind an endpoint. Raises GatewayError: an error before the
    first token has an HTTP status of its own."""
    if len(received.body) > SHORT:
        work = await _prepared(received)
        return work, await _start(work) if work.prompt else None
    came = received.parsed()
    guess = _guess(came)
    if guess is None:
        work = await beside(
            lambda: came.work(admit_request(came))
        )  # one thread for all: each change of threads costs time
        return work, await _start(work) if work.prompt else None
    early = asyncio.create_task(_start(guess))
    try:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        admitted = await beside(admit_request, came)
        if admitted == guess.admitted:
            guess.admitted = admitted
            return guess, await early
    finally:
        if not early.done():
            early.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):  # said above, or of no interest any more
            await early
    work = await beside(came.work, admitted)
    return work, await _start(work) if work.prompt else None


async def _prepared(received: Received) -> Work:
    """Parse and tokenise a long request in a thread, after verifying its token."""
    found = await beside(admission.authenticate, received.authorization)

    def prepare() -> Work:
        came = received.parsed()
        return came.work(admit_request(came))

    seconds = found.settings.answer_seconds - (time.monotonic() - received.began)
    return await Here.of_this_loop().preparation.run(found.token.pk, prepare, seconds=max(0.05, seconds))


def admit_request(came: Came) -> admission.Admitted:
    with connected():  # a long answer must not keep it
        return admission.admit(came.request, came.authorization, came.asked)


def _guess(came: Came) -> Work | None:
    """Work with the admission of the token's last request. None if unknown."""
    admitted = admission.foreseen(came.request, came.authorization, came.asked)
    folder = admitted.target.folder if admitted else None
    loaded = transcripts.at_hand(folder) if folder else None
    if admitted is None or loaded is None:
        return None
    try:
        return came.work(admitted, loaded)
    except GatewayError:
        return None  # whoever may not ask is told that first


@dataclass(slots=True)
class Started:
    """A response whose first tokens have arrived."""

    prompt: transcripts.Prompt
    reader: Reader
    pieces: AsyncIterator[Written]
    first: Written


def _experts_from(work: Work, prompt: transcripts.Prompt) -> int:
    """The first position whose routed experts are not recorded yet in this session."""
    base = prompt.base
    return base.experts if base is not None and base.client_session == work.asked.session else 0


async def _start(work: Work) -> Started:
    """Raises GatewayError: an error before the first token has an HTTP status of its own."""
    target, here = work.admitted.target, Here.of_this_loop()
    render, prompt = work.render, work.prompt
    assert render is not None and prompt is not None, "what is behind an endpoint is asked in `proxy`"
    reader = Reader(
        render,
        tools=bool(work.request.offered),
        thinking=render.thinks and render.text(prompt.tokens[-8:]).rstrip().endswith("<think>"),
        stops=work.request.stops,
        offered=work.request.offered,
        prompt=prompt.tokens[-transcripts.PROMPT_TAIL :],
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
        experts_from=_experts_from(work, prompt) if work.recorded == "yes" else None,
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
