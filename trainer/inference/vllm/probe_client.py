"""Weight verification of a vLLM server: it answers the probe, and the publisher's answers are the reference."""

from __future__ import annotations

import asyncio
import logging

from trainer.inference.contract import GenerateRequest, GenerateResponse, Verification
from trainer.inference.errors import Unavailable
from trainer.inference.verify_weights import WeightMismatch, verify_weights
from trainer.inference.vllm.api import Served, VllmApi
from trainer.inference.vllm.deployment import Deployment

log = logging.getLogger(__name__)


async def compare(api: VllmApi, served: Served, deployment: Deployment, *, salt: str) -> Verification:
    """Verify the deployment's weights on its server. Raises WeightMismatch, Unavailable."""
    probe = await asyncio.to_thread(deployment.probe)
    if probe is None:
        log.warning(
            "%s of %s is not compared with a reference: it was published without one, and is too large to make one here",
            deployment.label,
            api.url,
        )
        return "unknown"
    where, version = f"vLLM at {api.url}", deployment.version

    async def generate(request: GenerateRequest) -> GenerateResponse:
        async with asyncio.timeout(request.timeout_seconds):
            return await api.generate(request, model=served.name, salt=salt, before=version)

    try:
        gap = await verify_weights(probe, generate, deployment=deployment.name, version=version, where=where)
    except TimeoutError as error:
        raise Unavailable(f"{where} did not answer the probe of {deployment.label} in time") from error
    if gap is None:
        raise WeightMismatch(
            f"{where} was given {deployment.label}, and says that it computes with another version: let no other "
            "server in front of it give it weights, too, and restart it"
        )
    log.info("%s computes %s: %.2g nats off the reference", where, deployment.label, gap)
    return "proven"
