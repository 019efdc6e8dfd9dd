"""The inference contract on a vLLM server (0.32, one served model = one deployment). Thin on purpose.

The server must run with `--enable-scale-out --logprobs-mode processed_logprobs` and VLLM_SERVER_DEV_MODE=1.
Known limits are in docs/inference.md.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import safetensors.torch

from trainer.inference.client import Lanes, answered
from trainer.inference.contract import GenerateRequest, GenerateResponse, InferenceError, SyncTimings, VersionSpan
from trainer.weights import WeightStore


def version_number(text: str, first: int) -> int:
    """vLLM names versions by strings; before the first update it says `default`."""
    return first if text == "default" else int(text)


def request_body(request: GenerateRequest, model: str, salt: str) -> dict[str, Any]:
    """The body of POST /inference/v1/generate. `salt` separates the prefix caches of different weights."""
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
        "stream": False,
    }


def parse_response(body: dict[str, Any], *, before: int, first: int) -> GenerateResponse:
    """The contract's answer. Without version spans in it, all tokens count as of `before`, the older version."""
    try:
        choice = body["choices"][0]
        tokens = choice["token_ids"]
        logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        spans = [
            VersionSpan(version=version_number(str(s["version"]), first), start=s["start"], end=s["end"])
            for s in choice.get("weight_versions") or []
        ]
        if len(logprobs) != len(tokens):
            raise InferenceError(f"vLLM sent {len(tokens)} tokens and {len(logprobs)} log-probabilities")
        return GenerateResponse(
            token_ids=tokens,
            logprobs=logprobs,
            spans=spans or [VersionSpan(version=before, start=0, end=len(tokens))],
            finish_reason=choice["finish_reason"],
            reused_tokens=((body.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InferenceError(f"vLLM's answer has another shape than version 0.32 sends: {error!r}") from error


class VllmClient:
    """Generates, and moves the server to other weights. Belongs to one event loop."""

    def __init__(self, base_url: str, *, model: str, first_version: int = 0) -> None:
        self._lanes = Lanes(base_url)
        self._http = httpx.AsyncClient(base_url=base_url, timeout=300.0, trust_env=False)
        self.model = model
        self.first_version = first_version

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lanes.aclose()
        await self._http.aclose()

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Raises InferenceError when the server refuses the request or the deadline passes."""
        before = 0

        async def attempt(left: float, timeout: httpx.Timeout) -> httpx.Response:
            nonlocal before
            info = await self._http.get("/weight_info", timeout=timeout)
            if not info.is_success:
                return info
            before = version_number(str(info.json()["weight_version"]), self.first_version)
            body = request_body(request, self.model, f"weights-{before}")
            return await self._lanes.post("/inference/v1/generate", json.dumps(body), timeout)

        response = await answered(request.timeout_seconds, attempt)
        return parse_response(response.json(), before=before, first=self.first_version)

    async def pause(self) -> None:
        """Requests in flight keep their place and go on after `resume`."""
        await self._call("/pause", params={"mode": "keep"})

    async def resume(self) -> None:
        await self._call("/resume")

    async def update(self, store: WeightStore, version: int | None, *, scratch: Path) -> SyncTimings:
        """Loads `version` (None: newest) through a full checkpoint in `scratch`, which the server must see, too."""
        clock = _Clock()
        loaded = store.load(version)
        directory = scratch / f"v{loaded.version:06d}"
        directory.mkdir(parents=True, exist_ok=True)
        canonical = {n: t for n, t in loaded.state.items() if n not in store.manifest(loaded.version).aliases}
        safetensors.torch.save_file(canonical, directory / "model.safetensors")
        timings = SyncTimings(version=loaded.version, kind="anchor", decode=clock.lap())
        timings.bytes = (directory / "model.safetensors").stat().st_size
        await self.pause()
        timings.wait = clock.lap()
        try:
            await self._call(
                "/collective_rpc", json={"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
            )
            await self._call("/update_weight_version", json={"new_version": str(loaded.version)})
            timings.apply = timings.pause = clock.lap()
        finally:
            await self.resume()
        timings.resume = clock.lap()
        shutil.rmtree(directory)
        return timings

    async def _call(self, path: str, **fields: Any) -> None:
        try:
            response = await self._http.post(path, **fields)
        except httpx.TransportError as error:
            raise InferenceError(f"vLLM does not answer at {path} ({error}); is it up?") from error
        if not response.is_success:
            raise InferenceError(
                f"vLLM refused {path} with {response.status_code}: {response.text[:300]} "
                "(it needs VLLM_SERVER_DEV_MODE=1 for pause, update and resume)"
            )


class _Clock:
    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        return seconds
