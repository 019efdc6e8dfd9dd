"""ASGI lifespan of a server process: what the first chat request needs is loaded before any request is accepted.

The first use of a policy's tokenizer imports torch, which takes seconds and holds up every other request of the process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from composer_web.core.errors import UserError
from composer_web.gateway.errors import GatewayError
from composer_web.gateway.serving import transcripts
from composer_web.gateway.serving.routing import policy_folders
from composer_web.gateway.serving.threads import beside
from composer_web.policies.promotion.services import current
from composer_web.policies.selectors import resolve

log = logging.getLogger(__name__)
DEADLINE_SECONDS = 60.0
"""A process that could not load them by then serves without, as it does where nothing is promoted."""


async def lifespan(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """ASGI application of the `lifespan` scope. Never refuses a start: pages work without a policy."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await prepare()
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


async def prepare(seconds: float = DEADLINE_SECONDS) -> list[str]:
    """Load the tokenizers of the promoted version and its canary; returns the versions that are loaded."""
    began = time.monotonic()
    try:
        loaded = await asyncio.wait_for(beside(_load), seconds)
    except (GatewayError, UserError, ValueError, OSError, TimeoutError) as error:  # PolicyUnreadable is a ValueError
        log.warning("the promoted version's tokenizer is not loaded yet: %s", str(error) or "it took too long")
        return []
    if loaded:
        log.info("loaded %s in %.1f s", ", ".join(loaded), time.monotonic() - began)
    return loaded


def _load() -> list[str]:
    now = current()
    if now is None:
        return []
    chosen = [(now.policy, now.version)]
    if now.canary_policy is not None and now.canary_version is not None:
        chosen.append((now.canary_policy, now.canary_version))
    for policy, version in chosen:
        folder = resolve(policy.at(version)).path
        policy_folders[policy.pk, version] = folder
        transcripts.load(folder)
    return [policy.at(version) for policy, version in chosen]
