"""Routing: the promoted version or its canary, pinned in the inference server, or a policy behind an endpoint."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from composer_web.core import inference
from composer_web.core.errors import UserError
from composer_web.gateway.configuration import Settings
from composer_web.gateway.errors import NothingPromoted, Unavailable, UnknownModel
from composer_web.gateway.serving.threads import beside
from composer_web.gateway.serving.token_lookup import Served, Serving
from composer_web.policies.models import Endpoint, Policy
from composer_web.policies.promotion import services as promotion
from composer_web.policies.selectors import resolve
from trainer.inference.contract import DeploymentSpec, InferenceError, InferenceRefused

log = logging.getLogger(__name__)
PREFIX = "gateway-"


@dataclass(frozen=True, slots=True)
class Target:
    """A policy version that answers. `folder` has its weights; None behind an endpoint."""

    policy_id: int
    name: str
    version: int
    canary: bool = False
    folder: Path | None = None

    @property
    def served(self) -> str:
        return self.name if self.folder is None else f"{self.name}@{self.version}"

    @property
    def deployment(self) -> str:
        return f"{PREFIX}{self.policy_id}-{self.version}"

    @property
    def spec(self) -> DeploymentSpec:
        return DeploymentSpec(name=self.deployment, policy_dir=str(self.folder))


def on_canary(key: str, share: float) -> bool:
    """Whether the canary serves a session. Deterministic per session across processes. A session on the canary stays
    there while its share grows."""
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    return place < share


def choose(model: str, *, key: str, settings: Settings, serving: Serving | None) -> Target:
    """Raises UnknownModel, NothingPromoted, Unavailable. Nothing is cached: a rollback takes effect with the next
    request."""
    if model == promotion.CHANNEL:
        if serving is None:
            raise NothingPromoted(
                "nothing is promoted yet: promote a policy version on the promotion page or with "
                "`opencomposer promotions create NAME@VERSION`"
            )
        return _weights(serving, key)
    if model in settings.endpoints:
        policy = Policy.objects.filter(name=model, kind="endpoint").first()
        if policy is not None:
            return Target(policy.pk, policy.name, 0)
    raise UnknownModel(f"there is no model {model[:80]!r}; there are: {', '.join(models(settings))}", param="model")


def models(settings: Settings) -> list[str]:
    """Model names that a request may use."""
    known = Policy.objects.filter(kind="endpoint", name__in=settings.endpoints).order_by("name")
    return [promotion.CHANNEL, *known.values_list("name", flat=True)]


policy_folders: dict[tuple[int, int], Path] = {}
"""Weights of a promoted version never move. A missing folder is looked up again."""


def _weights(serving: Serving, key: str) -> Target:
    target = at_once(serving, key)
    if target is not None and target.folder is not None and target.folder.is_dir():
        return target
    chosen = _chosen(serving, key)
    try:
        policy_folders[chosen.policy_id, chosen.version] = resolve(f"{chosen.name}@{chosen.version}").path
    except UserError as error:
        raise Unavailable(f"the promoted version cannot be served: {error.message}") from error
    target = at_once(serving, key)
    assert target is not None, "its folder was just looked up"
    return target


def at_once(serving: Serving, key: str) -> Target | None:
    """The target, if known without a lookup."""
    chosen = _chosen(serving, key)
    folder = policy_folders.get((chosen.policy_id, chosen.version))
    if folder is None:
        return None
    return Target(chosen.policy_id, chosen.name, chosen.version, chosen is serving.canary, folder)


def _chosen(serving: Serving, key: str) -> Served:
    canary = serving.canary if serving.canary is not None and on_canary(key, serving.share) else None
    return canary or serving.promoted


def endpoint_of(target: Target) -> Endpoint:
    return Endpoint.objects.select_related("policy").get(policy_id=target.policy_id)


class Deployments:
    """Targets deployed on the inference server, as far as this process knows. Belongs to one event loop."""

    def __init__(self) -> None:
        self._ready: set[str] = set()
        self._loading: dict[str, asyncio.Task[None]] = {}

    async def ready(self, target: Target, *, seconds: float) -> None:
        """Deploy `target`. Raises Unavailable if it is not served within `seconds`."""
        if target.deployment in self._ready:
            return
        loading = self._loading.get(target.deployment)
        if loading is None or loading.done():
            loading = asyncio.create_task(self._load(target))
            self._loading[target.deployment] = loading
        done, _ = await asyncio.wait({loading}, timeout=seconds)
        if not done:
            raise Unavailable(f"{target.served} is not loaded within {seconds:.3g} s; try again in a moment")
        loading.result()

    def forget(self, target: Target) -> None:
        """Forget a deployment that the server reports as missing."""
        self._ready.discard(target.deployment)

    async def _load(self, target: Target) -> None:
        try:
            await beside(inference.deploy, target.spec)
            await beside(remove_idle, keep={target.deployment})
        except InferenceRefused as error:
            raise Unavailable(f"the inference engine refuses {target.served}: {error}") from error
        except InferenceError as error:
            raise Unavailable(f"{target.served} cannot be loaded: {error}") from error
        self._ready.add(target.deployment)


def remove_idle(*, keep: set[str]) -> None:
    """Remove idle deployments of versions that no longer receive requests."""
    current = promotion.current()
    if current is None:
        return
    wanted = keep | {f"{PREFIX}{current.policy_id}-{current.version}"}
    if current.canary_policy_id is not None:
        wanted.add(f"{PREFIX}{current.canary_policy_id}-{current.canary_version}")
    with inference.admin(timeout=10.0) as server:
        for status in server.deployments():
            idle = not status.running and not status.waiting
            if status.name.startswith(PREFIX) and status.name not in wanted and idle:
                server.remove(status.name)
                log.info("the deployment %s serves nobody any more and is removed", status.name)
