"""One vLLM 0.32 server over HTTP: tokens in and out, and moving it to other weights. Thin on purpose.

It must run with `--enable-scale-out --logprobs-mode processed_logprobs` and VLLM_SERVER_DEV_MODE=1.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from trainer.inference.client import Connections
from trainer.inference.contract import DeploymentSpec, GenerateRequest, GenerateResponse, LengthLimit, VersionSpan
from trainer.inference.errors import BadRequest, Unavailable
from trainer.inference.vllm.streaming import BadAnswer, StreamedAnswer
from trainer.routed_experts import RoutedExperts

LOAD_SECONDS = 600.0
"""Timeout of one weight reload."""
TELL_SECONDS = 30.0
"""Timeout of queries about the server's start; vLLM collects machine information for them first."""
STEER_SECONDS = 60.0
"""Timeout of pausing, resuming and naming a version, which wait for the step in progress."""
WATCH_SECONDS = 10.0
CONNECT_SECONDS = 5.0
GENERATE = "/inference/v1/generate"
_CACHE = re.compile(r"^vllm:kv_cache_usage_perc(?:\{.*\})? ([0-9.]+(?:e[+-]?[0-9]+)?)$", re.MULTILINE)
_PREEMPTED = re.compile(r"^vllm:num_preemptions_total(?:\{.*\})? ([0-9.]+(?:e[+-]?[0-9]+)?)$", re.MULTILINE)
"""One line per engine of the server, in Prometheus text format; 1 is full."""
_LABEL = re.compile(r"~(\d+)~")


class Refused(Unavailable):
    """The server answers and refuses the request."""


class WeightsLost(Unavailable):
    """The server holds other weights than it was given: it restarted."""


@dataclass(frozen=True, slots=True)
class Served:
    """Start parameters of a server: its model's name in requests, and the folder as the server sees it."""

    name: str
    folder: Path
    context: int | None = None
    """Maximum tokens of prompt and answer together. None where the server does not report it."""


def label(deployment: str, version: int, digest: str) -> str:
    """Label of the weights in a server; the digest distinguishes versions of abandoned histories.

    It is also the salt of prefix caches, which allows at most 128 characters and no @, / or \\.
    """
    return f"{deployment}~{version}~{digest[:16]}"


def labelled_version(text: str) -> int:
    """Parse the version from our label. Raises WeightsLost for any other (`default` after a restart)."""
    found = _LABEL.search(text)
    if found is None:
        raise WeightsLost(f"the server answered with weights {text!r}, which it was not given")
    return int(found[1])


NARROWED = (
    "the open tokens of each step, which the trainer needs then, are not read from vLLM; set sampling.top_k to 0 and "
    "sampling.top_p to 1, or serve the policy with the embedded engine (OPENCOMPOSER_INFERENCE_ENGINE=embedded)"
)


def refuse_unsupported(spec: DeploymentSpec) -> None:
    """Reject specs that vLLM cannot serve, before anything runs on a server. Raises BadRequest."""
    if spec.num_speculative_tokens:
        raise BadRequest(
            f"sampling.num_speculative_tokens is {spec.num_speculative_tokens}, and vLLM does not draft with a policy's own "
            "head; leave it empty, or "
            "serve the policy with the embedded engine (OPENCOMPOSER_INFERENCE_ENGINE=embedded)"
        )
    asked = [
        *([f"sampling.top_k is {spec.top_k}"] if spec.top_k else []),
        *([f"sampling.top_p is {spec.top_p:g}"] if spec.top_p < 1.0 else []),
    ]
    if asked:
        raise BadRequest(f"{' and '.join(asked)}: {NARROWED}")


def request_body(request: GenerateRequest, model: str, salt: str, *, stream: bool = False) -> dict[str, Any]:
    """The body of POST /inference/v1/generate. `salt` separates the prefix caches of different weights."""
    if request.mask_logits:
        raise BadRequest(f"top_k is {request.top_k} and top_p is {request.top_p:g}: {NARROWED}")
    sampling = {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stop_token_ids": request.stop_ids,
        "ignore_eos": True,  # only the caller's stop ids end a turn
        "logprobs": 0,  # the sampled token's own log-probability, no alternatives
        "detokenize": False,
    }
    if request.seed is not None:
        sampling["seed"] = request.seed
    return {
        "model": model,
        "token_ids": request.prompt_ids,
        "sampling_params": sampling,
        "cache_salt": salt,
        "stream": stream,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    }


def routed_experts(text: str, first: int | None) -> RoutedExperts | None:
    """Decode vLLM's routed experts (base64 of an npy array, one row per input token), from position `first` on.

    Raises BadAnswer.
    """
    if first is None:
        return None
    try:
        rows = np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False)
        if rows.ndim != 3 or not np.issubdtype(rows.dtype, np.integer) or rows.min(initial=0) < 0:
            raise ValueError(f"an array of {rows.dtype} {rows.shape}")
    except (binascii.Error, ValueError, EOFError) as error:
        raise BadAnswer(f"vLLM sent routed experts that cannot be read: {error}") from error
    return RoutedExperts.pack(rows[first:].astype(np.uint16), start=first)


def parse_response(
    body: dict[str, Any], *, before: int, experts_from: int | None = None, max_tokens: int | None = None
) -> GenerateResponse:
    """Parse vLLM's answer. Without version spans, all tokens count as of `before`, the version at the request's start.
    Raises BadAnswer, WeightsLost.
    """
    try:
        choice = body["choices"][0]
        tokens = choice["token_ids"]
        logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        spans = [
            VersionSpan(version=labelled_version(str(s["version"])), start=s["start"], end=s["end"])
            for s in choice.get("weight_versions") or []
        ]
        if len(logprobs) != len(tokens):
            raise BadAnswer(f"vLLM sent {len(tokens)} tokens and {len(logprobs)} log-probabilities")
        return GenerateResponse(
            token_ids=tokens,
            logprobs=logprobs,
            spans=[s for s in spans if s.end > s.start] or [VersionSpan(version=before, start=0, end=len(tokens))],
            finish_reason=choice["finish_reason"],
            length_limit=_length_limit(len(tokens), max_tokens) if choice["finish_reason"] == "length" else None,
            experts=routed_experts(choice["routed_experts"], experts_from) if choice.get("routed_experts") else None,
            reused_tokens=((body.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BadAnswer(f"vLLM's answer has another shape than version 0.32 sends: {error!r}") from error


def _length_limit(tokens: int, max_tokens: int | None) -> LengthLimit:
    """vLLM says `length` for both; its own limit (`--max-model-len`) leaves fewer tokens than were asked for."""
    cut = max_tokens is not None and tokens < max_tokens
    return LengthLimit.ENGINE_CONTEXT if cut else LengthLimit.MAX_TOKENS


class Room(NamedTuple):
    """KV-cache state from vLLM's metrics; None where a metric is missing."""

    used: float | None = None
    """Current utilisation by requests, in the server's fullest engine."""
    preemptions: int | None = None
    """Preemptions since the start, over all its engines."""


def read_room(metrics: str) -> Room:
    """Parse the text of /metrics."""
    preempted = [int(float(found[1])) for found in _PREEMPTED.finditer(metrics)]
    used = max((float(found[1]) for found in _CACHE.finditer(metrics)), default=None)
    return Room(used, sum(preempted) if preempted else None)


class VllmApi:
    """Client of one vLLM server. Raises Unavailable when the server does not answer or lacks an interface."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connections = Connections(url)
        self._streams: dict[tuple[str, str], StreamedAnswer] = {}
        """The newest answer in progress of each deployment and session."""
        self._http = httpx.AsyncClient(base_url=url, timeout=WATCH_SECONDS, trust_env=False)

    async def aclose(self) -> None:
        await self._connections.aclose()
        await self._http.aclose()

    async def served(self) -> Served:
        body = await self._call("GET", "/v1/models")
        try:
            first = body["data"][0]
            return Served(first["id"], Path(first.get("root") or first["id"]), first.get("max_model_len"))
        except (KeyError, IndexError, TypeError) as error:
            raise Unavailable(f"what answers at {self.url} is not vLLM: /v1/models lists no model") from error

    async def held(self) -> str:
        """Label of the server's weights; `default` until it was given some."""
        body = await self._call("GET", "/weight_info", need="VLLM_SERVER_DEV_MODE=1")
        try:
            return str(body["weight_version"])
        except (KeyError, TypeError) as error:
            raise Unavailable(f"vLLM at {self.url} tells no weight version; version 0.32 does") from error

    async def returns_experts(self) -> bool | None:
        """Whether answers include routed experts; None where the server does not report it. Raises Unavailable."""
        told = {"config_format": "json"}
        try:
            body = await self._call("GET", "/server_info", params=told, timeout=TELL_SECONDS)
        except Refused:
            return None
        try:
            return bool(body["vllm_config"]["aux_output_config"]["enable_return_routed_experts"])
        except (KeyError, TypeError):
            return None

    async def room(self) -> Room:
        """KV-cache state; empty where the server does not report it."""
        try:
            response = await self._http.get("/metrics")
        except httpx.TransportError:
            return Room()  # whether it answers at all is for `held` to say
        return read_room(response.text) if response.is_success else Room()

    async def generate(
        self, request: GenerateRequest, *, model: str, salt: str, before: int, until: float | None = None
    ) -> GenerateResponse:
        """Make one attempt; the caller cancels it at the deadline. Raises BadRequest, Unavailable, BadAnswer.

        With `until` (of the event loop's clock) an answer that may be `partial` is returned by then as far as it has come.
        Routed experts come with a whole answer only, so a request for them has no partial one. Raises TimeoutError when
        there is no token by then, or the engine hangs.
        """
        stream = until is not None and request.partial and request.experts_from is None
        body = json.dumps(request_body(request, model, salt, stream=stream))
        try:
            if stream:
                answer = await self._streamed(request, body, until)
            else:
                response = await self._connections.post(GENERATE, body, httpx.Timeout(None, connect=CONNECT_SECONDS))
                self._check(response)
                answer = response.json()
        except httpx.TransportError as error:
            raise Unavailable(f"vLLM at {self.url} does not answer ({type(error).__name__}: {error})") from error
        return parse_response(answer, before=before, experts_from=request.experts_from, max_tokens=request.max_tokens)

    def partial(self, deployment: str, session: str) -> list[int]:
        """Tokens so far of an answer in progress; none of one that comes whole."""
        answer = self._streams.get((deployment, session))
        return list(answer.token_ids) if answer is not None else []

    async def _streamed(self, request: GenerateRequest, body: str, until: float | None) -> Any:
        answer = StreamedAnswer()
        place = (request.deployment, request.session) if request.session is not None else None
        if place is not None:
            self._streams[place] = answer
        try:
            return await self._read_stream(answer, body, until)
        finally:
            if place is not None and self._streams.get(place) is answer:
                del self._streams[place]

    async def _read_stream(self, answer: StreamedAnswer, body: str, until: float | None) -> Any:
        try:
            async with (
                asyncio.timeout_at(until),
                self._connections.stream(GENERATE, body, connect=CONNECT_SECONDS) as response,
            ):
                if response.content_type != "text/event-stream":
                    whole = httpx.Response(response.status, content=await response.read())
                    self._check(whole)
                    return whole.json()
                async for line in response.content:
                    answer.take(line)
        except TimeoutError:
            if not answer.token_ids or answer.stalled:
                raise
        else:
            if not answer.finish_reason:
                raise Unavailable(f"vLLM at {self.url} ended an answer without a reason")
        return answer.body()

    def _check(self, response: httpx.Response) -> None:
        """Raises BadRequest, Unavailable for anything but success."""
        if response.status_code in (403, 404, 405):
            raise Unavailable(
                f"vLLM at {self.url} has no /inference/v1/generate: start it with --enable-scale-out (version 0.32)"
            )
        if 400 <= response.status_code < 500:
            raise BadRequest(f"vLLM refused the request: {_said(response)}")
        if not response.is_success:
            raise Unavailable(f"vLLM at {self.url} failed: {_said(response)}")

    async def pause(self) -> None:
        """Pause; requests in flight keep their state and continue after `resume`."""
        await self._call(
            "POST", "/pause", need="VLLM_SERVER_DEV_MODE=1", params={"mode": "keep"}, timeout=STEER_SECONDS
        )

    async def resume(self) -> None:
        await self._call("POST", "/resume", need="VLLM_SERVER_DEV_MODE=1", timeout=STEER_SECONDS)

    async def load(self, folder: Path) -> None:
        """Load the weights from `folder`, which the server must see under the same path."""
        need = f"VLLM_SERVER_DEV_MODE=1, and {folder} at the same path as here"
        await self.on_workers("reload_weights", {"weights_path": str(folder)}, need=need)

    async def on_workers(self, method: str, arguments: dict[str, str], *, need: str = "") -> list[Any]:
        """Call a method on every worker and return the answers. Raises Refused where it is missing or fails."""
        body = {"method": method, "kwargs": arguments}
        answer = await self._call("POST", "/collective_rpc", need=need, json=body, timeout=LOAD_SECONDS)
        return list((answer or {}).get("results") or [])

    async def name(self, label: str) -> None:
        """Set the label of the current weights; answers report it token by token."""
        need, named = "VLLM_SERVER_DEV_MODE=1", {"new_version": label}
        await self._call("POST", "/update_weight_version", need=need, json=named, timeout=STEER_SECONDS)

    async def _call(self, method: str, path: str, *, need: str = "", **fields: Any) -> Any:
        try:
            response = await self._http.request(method, path, **fields)
        except httpx.TransportError as error:
            raise Unavailable(f"vLLM at {self.url} does not answer ({type(error).__name__}: {error})") from error
        if not response.is_success:
            needs = f" (it needs {need})" if need else ""
            raise Refused(f"vLLM at {self.url} refused {path}: {_said(response)}{needs}")
        try:
            return response.json() if response.content else None
        except json.JSONDecodeError as error:
            raise Unavailable(f"what answers at {self.url}{path} is not vLLM: no JSON") from error


def _said(response: httpx.Response) -> str:
    return f"HTTP {response.status_code}: {response.text[:300]}"
