"""Deployments of one embedded server: loading, following a weight store, in-flight swaps, and the registry on disk."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from trainer.inference.contract import DeploymentSpec, DeploymentStatus, SyncTimings, Verification
from trainer.inference.embedded.devices import CPU
from trainer.inference.embedded.factory import build_decoder, build_weights, decoder_of, read_shape
from trainer.inference.embedded.model import Decoder, Weights, read_state
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.serving.kv_size import sized
from trainer.inference.embedded.serving.thread import EngineThread
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.embedded.speculative import Drafter, load_drafter, published_drafter
from trainer.inference.embedded.verify import verify_weights
from trainer.inference.errors import ServerError, SyncFailed, Unavailable, UnknownDeployment
from trainer.inference.reference_logprobs import reference
from trainer.inference.registry import remember, remembered
from trainer.inference.verify_weights import WeightMismatch
from trainer.weights import Fetched, Manifest, Subscriber, WeightError, open_versions
from trainer.weights.differences import restore
from trainer.weights.probe import Probe, published_probe

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0


@dataclass(eq=False)
class Deployment:
    spec: DeploymentSpec
    runner: Runner
    subscriber: Subscriber | None
    digest: str = ""
    error: str = ""
    failed: bool = False
    """The last attempt to load the first weights failed; it is retried."""
    retry_at: float = 0.0
    proof: Verification = ""
    refused: tuple[int, str] | None = None
    """Version and digest of weights that this engine computes wrongly; `error` has the message."""
    probe: tuple[int, Probe | None] | None = None
    """Probe of the last version that was loaded in full."""
    well_at: float = 0.0
    """Time of the last verification that succeeded, or had nothing to compare with."""
    last_sync: SyncTimings | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises loads and swaps."""

    @property
    def loaded(self) -> bool:
        return self.runner.decoder is not None

    def status(self) -> DeploymentStatus:
        state = "paused" if self.runner.paused else "serving"
        if self.refused:
            state = "failed"
        elif not self.loaded:
            state = "failed" if self.failed else "loading"
        return DeploymentStatus.model_validate(
            {
                "name": self.spec.name,
                "version": self.runner.version,
                "digest": self.digest,
                "state": state,
                "follow": self.spec.follow,
                "running": self.runner.running,
                "waiting": len(self.runner.waiting),
                "slots": self.runner.limits.max_num_seqs if self.loaded else 0,
                "max_model_len": self.runner.scheduler.length if self.runner.scheduler else 0,
                "kv_cache_bytes": self.runner.scheduler.cache.bytes if self.runner.scheduler else 0,
                "cache_share": (self.runner.kv_usage.peak() or 0.0) if self.loaded else None,
                "generated_tokens": self.runner.generated,
                "prompt_tokens": self.runner.read,
                "reused_tokens": self.runner.reused,
                "preemptions": self.runner.preemptions,
                "draft_tokens": self.runner.drafter.drafted if self.runner.drafter else 0,
                "accepted_tokens": self.runner.drafter.accepted if self.runner.drafter else 0,
                "last_sync": self.last_sync,
                "proof": "differs" if self.refused else self.proof,
                "error": self.error,
            }
        )


class Deployments:
    """All deployments of a server. Runs on the event loop; heavy work goes to threads, swaps to the engine."""

    def __init__(self, engine: EngineThread, limits: Limits, memory: Path, device: torch.device = CPU) -> None:
        self.engine = engine
        self.limits = limits
        self.device = device
        self.memory = memory
        self.all: dict[str, Deployment] = {}

    def get(self, name: str) -> Deployment:
        try:
            return self.all[name]
        except KeyError:
            known = ", ".join(sorted(self.all)) or "none"
            raise UnknownDeployment(f"no deployment {name!r} (there is: {known}); create it first") from None

    def restore(self) -> None:
        """Register the deployments of a previous process; the follow loop loads them."""
        for spec in remembered(self.memory):
            self._register(spec)

    def _remember(self) -> None:
        remember(self.memory, [deployment.spec for deployment in self.all.values()])

    async def create(self, spec: DeploymentSpec) -> Deployment:
        """Create a deployment. Idempotent: an equal spec changes nothing, a different one replaces it. Raises loading
        errors."""
        there = self.all.get(spec.name)
        if there is not None and there.spec == spec:
            async with there.lock:  # it may be loading, after a restart say: twice would take twice as long
                if there.loaded:
                    return there
            there = self.all.get(spec.name)
        if there is not None:
            await self.delete(spec.name)
        deployment = self._register(spec)
        try:
            await self._load(deployment)
        except ServerError:
            await self.delete(spec.name)
            raise
        self._remember()
        return deployment

    def _register(self, spec: DeploymentSpec) -> Deployment:
        runner = Runner(self.limits)
        subscriber = Subscriber(open_versions(spec.store)) if spec.store else None
        deployment = Deployment(spec, runner, subscriber)
        self.all[spec.name] = deployment
        self.engine.call(lambda: self.engine.runners.__setitem__(spec.name, runner))
        return deployment

    async def delete(self, name: str) -> None:
        deployment = self.get(name)
        del self.all[name]

        def forget() -> None:
            self.engine.runners.pop(name, None)
            deployment.runner.fail_all(Unavailable(f"deployment {name!r} was removed or replaced"))

        await asyncio.wrap_future(self.engine.call(forget))
        if deployment.subscriber is not None:
            deployment.subscriber.store.unpin(_pin(name))
        self._remember()

    async def pause(self, name: str) -> Deployment:
        deployment = self.get(name)
        await asyncio.wrap_future(self.engine.call(lambda: setattr(deployment.runner, "paused", True)))
        return deployment

    async def resume(self, name: str) -> Deployment:
        deployment = self.get(name)
        await asyncio.wrap_future(self.engine.call(lambda: setattr(deployment.runner, "paused", False)))
        return deployment

    async def update(self, name: str, version: int | None) -> SyncTimings:
        """Swap in `version` (None: newest in the store). Raises SyncFailed; the old weights stay."""
        deployment = self.get(name)
        if deployment.subscriber is None:
            raise SyncFailed(f"deployment {name!r} has no weight store; create it with one")
        if not deployment.loaded:
            return await self._load(deployment, version)
        return await self._sync(deployment, version)

    async def follow(self, poll_seconds: float) -> None:
        """Loop forever: load pending deployments and swap in new versions for those that follow a store."""
        while True:
            for deployment in list(self.all.values()):
                if deployment.lock.locked() or time.monotonic() < deployment.retry_at:
                    continue
                try:
                    if deployment.refused and not await asyncio.to_thread(_others, deployment):
                        continue
                    if not deployment.loaded:
                        await self._load(deployment)
                    elif deployment.spec.follow and deployment.subscriber and deployment.subscriber.behind():
                        await self._sync(deployment, None)
                except (ServerError, WeightError, OSError) as error:
                    deployment.error = str(error)
                    deployment.retry_at = time.monotonic() + RETRY_SECONDS
                    log.warning("deployment %s: %s", deployment.spec.name, error)
            await asyncio.sleep(poll_seconds)

    async def _load(self, deployment: Deployment, version: int | None = None) -> SyncTimings:
        """Load the first weights. Stays in the loading state while the store that it follows is empty."""
        spec = deployment.spec
        async with deployment.lock:
            deployment.failed = True
            wanted = spec.version if version is None else version
            timings, decoder, digest, fetched = await asyncio.to_thread(self._first, deployment, wanted)
            deployment.failed = False
            if decoder is None:
                return timings
            limits = sized(self.limits, spec, decoder)
            deployment.runner.limits = limits
            cache = make_cache(decoder, limits)
            ahead = self._ahead(spec)
            drafter = published_drafter(fetched.mirror, decoder, ahead) if fetched else None
            drafter = drafter or load_drafter(Path(spec.policy_dir), decoder, ahead)

            def install() -> None:
                deployment.runner.install(decoder, cache, timings.version, drafter)

            await self._apply(deployment, install, timings)
            deployment.digest = digest
            self._commit(deployment, fetched)
            return timings

    def _first(
        self, deployment: Deployment, version: int | None
    ) -> tuple[SyncTimings, Decoder | None, str, Fetched | None]:
        spec = deployment.spec
        shape = read_shape(Path(spec.policy_dir))
        began = time.perf_counter()
        if deployment.subscriber is None:
            self._restore(spec)
            state = read_state(Path(spec.policy_dir))
            digest, fetched = _files_digest(Path(spec.policy_dir)), None
            timings = SyncTimings(version=0, kind="anchor", fetch=time.perf_counter() - began)
        else:
            fetched = self._fetch(deployment, version)
            if fetched is None:
                if not spec.follow:
                    raise SyncFailed(f"weight store {spec.store} is empty; publish a version, or follow it")
                return SyncTimings(version=-1), None, "", None
            state, digest = fetched.mirror.state(), fetched.mirror.digest
            timings = _timings(fetched)
        began = time.perf_counter()
        decoder = build_decoder(shape, state, self._room(spec, shape), device=self.device)
        self._verify_weights(deployment, decoder, timings.version, digest, fetched)
        timings.decode += time.perf_counter() - began
        return timings, decoder, digest, fetched

    def _restore(self, spec: DeploymentSpec) -> None:
        """An older checkpoint's weights are a difference until somebody serves them. Raises SyncFailed."""
        try:
            restore(Path(spec.policy_dir))
        except WeightError as error:
            raise SyncFailed(f"deployment {spec.name!r}: {error}") from error

    def _room(self, spec: DeploymentSpec, shape: DecoderShape) -> int:
        """Tokens of the deployment's longest sequence."""
        return min(spec.max_model_len or self.limits.max_context, shape.max_position_embeddings)

    def _verify_weights(
        self, deployment: Deployment, decoder: Decoder, version: int, digest: str, fetched: Fetched | None
    ) -> None:
        """Verify fully loaded weights against the publisher's probe before any request uses them. Blocks.

        Raises WeightMismatch: this deployment's answers are then rejected until other weights are published.
        """
        spec, store = deployment.spec, deployment.subscriber.store if deployment.subscriber else None
        probe = reference(store, version, Path(spec.policy_dir), fetched.mirror if fetched else None)
        gap = None
        try:
            if probe is not None:
                gap = verify_weights(
                    decoder,
                    probe,
                    deployment=spec.name,
                    version=version,
                    max_context=self._room(spec, decoder.shape),
                )
        except WeightMismatch as error:
            self.refuse(deployment, (version, digest), error)
            raise
        deployment.refused, deployment.probe, deployment.well_at = None, (version, probe), time.monotonic()
        deployment.proof = "unknown" if gap is None else "proven"
        if gap is None:
            log.warning("version %d of %s is not compared with a reference: there is none here", version, spec.name)
        else:
            log.info("version %d of %s computes %.2g nats off the reference", version, spec.name, gap)

    def refuse(self, deployment: Deployment, weights: tuple[int, str], error: WeightMismatch) -> None:
        """Stop answering with these weights of a deployment."""
        deployment.refused, deployment.error = weights, str(error)
        self.engine.call(lambda: deployment.runner.fail_all(error))

    def known(self, deployment: Deployment) -> Probe | None:
        """Reference probe of the weights in service, as far as its prompts fit. Blocks. None where there is none."""
        version, store = deployment.runner.version, deployment.subscriber.store if deployment.subscriber else None
        found = deployment.probe[1] if deployment.probe and deployment.probe[0] == version else None
        if found is None and store is not None:
            found = published_probe(store, version)
        decoder = deployment.runner.decoder
        if found is None or decoder is None:
            return None
        rows = [row for row in found.rows if len(row.prompt_ids) < self._room(deployment.spec, decoder.shape)]
        return found.model_copy(update={"rows": rows}) if rows else None

    def _fetch(self, deployment: Deployment, version: int | None) -> Fetched | None:
        assert deployment.subscriber is not None
        try:
            return deployment.subscriber.fetch(version)
        except (WeightError, OSError) as error:
            raise SyncFailed(f"deployment {deployment.spec.name!r}: {error}") from error

    async def _sync(self, deployment: Deployment, version: int | None) -> SyncTimings:
        async with deployment.lock:
            prepared = await asyncio.to_thread(self._prepare, deployment, version)
            if prepared is None:
                return SyncTimings(version=deployment.runner.version)
            fetched, weights, drafter, timings = prepared
            await self._apply(deployment, lambda: deployment.runner.swap(weights, timings.version, drafter), timings)
            deployment.digest = fetched.mirror.digest
            self._commit(deployment, fetched)
            return timings

    def _prepare(
        self, deployment: Deployment, version: int | None
    ) -> tuple[Fetched, Weights, Drafter | None, SyncTimings] | None:
        """Everything that needs no pause: fetch, decode, verify, fuse fp32 weights, load the version's draft head."""
        fetched = self._fetch(deployment, version)
        if fetched is None:
            return None
        timings = _timings(fetched)
        began = time.perf_counter()
        assert deployment.runner.decoder is not None
        shape = deployment.runner.decoder.shape
        weights = build_weights(shape, fetched.mirror.state(), device=self.device)
        if fetched.kind == "anchor" or deployment.refused:
            decoder = decoder_of(
                shape, weights, self._room(deployment.spec, shape), device=self.device
            )  # requests go on in the other one meanwhile
            self._verify_weights(deployment, decoder, timings.version, fetched.mirror.digest, fetched)
        drafter = published_drafter(fetched.mirror, deployment.runner.decoder, self._ahead(deployment.spec))
        timings.decode += time.perf_counter() - began
        return fetched, weights, drafter, timings

    def _ahead(self, spec: DeploymentSpec) -> int:
        return self.limits.speculate if spec.num_speculative_tokens is None else spec.num_speculative_tokens

    async def _apply(self, deployment: Deployment, work: Callable[[], None], timings: SyncTimings) -> None:
        """Run `work` between two steps; return when the next step may begin."""
        asked = time.perf_counter()
        stood = held = 0.0

        def run() -> None:
            nonlocal stood, held
            stood = time.perf_counter()
            work()
            held = time.perf_counter()

        def go_on() -> None:
            timings.swapped(asked=asked, stood=stood, held=held, went_on=time.perf_counter())

        await asyncio.wrap_future(self.engine.call(run, then=go_on))
        deployment.last_sync = timings
        deployment.error = ""

    def _commit(self, deployment: Deployment, fetched: Fetched | None) -> None:
        subscriber = deployment.subscriber
        if subscriber is None or fetched is None:
            return
        subscriber.commit(fetched)
        for refusal in fetched.refusals:
            log.warning("deployment %s refused: %s", deployment.spec.name, refusal)
        if not deployment.spec.follow:
            subscriber.store.pin(_pin(deployment.spec.name), fetched.mirror.version)


def _others(deployment: Deployment) -> bool:
    """Whether weights other than the refused ones are available. Raises WeightError."""
    newest: Manifest | None = None
    if deployment.subscriber is not None and deployment.spec.follow:
        newest = deployment.subscriber.newest()
    return newest is not None and (newest.version, newest.digest) != deployment.refused


def _pin(name: str) -> str:
    return f"deployment-{name}"


def _timings(fetched: Fetched) -> SyncTimings:
    return SyncTimings.model_validate(
        {
            "version": fetched.mirror.version,
            "kind": fetched.kind,
            "bytes": fetched.bytes,
            "fetch": fetched.fetch_seconds,
            "decode": fetched.decode_seconds,
        }
    )


def _files_digest(policy_dir: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(policy_dir.glob("*.safetensors")):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
