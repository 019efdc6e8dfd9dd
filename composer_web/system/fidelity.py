"""Latest measurement, per backend, of how closely a sandbox resembles a developer's machine, and new ones on demand.

Stored as artifacts `fidelity/<backend>`. A new measurement replaces the last, so no table is needed.
"""

from __future__ import annotations

import asyncio

from django.utils import timezone
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from composer_web.core.artifacts import ArtifactError, artifacts
from composer_web.core.models import Outbox
from composer_web.core.queue import leases
from composer_web.core.queue.outbox import enqueue
from composer_web.env import env
from sandbox.backends.base import SandboxError
from sandbox.backends.choice import chosen, default_backend
from sandbox.fidelity import Result
from sandbox.harness.profile import get_profile

FOLDER = "fidelity"
LEASE = "fidelity"
PROFILE = "full"


class NotMeasured(Exception):
    """The sandboxes or the recorded machine failed; the message gives details."""


class Kept(BaseModel):
    """What is kept of a backend: the last measurement that came to an end, and what went wrong since."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    backend: str
    tried_at: AwareDatetime
    problem: str = ""
    result: Result | None = None


def kept() -> list[Kept]:
    """Results of every measured backend, newest first. A result that this version cannot read counts as not
    measured."""
    store, found = artifacts(), []
    for name in store.children(FOLDER):
        try:
            found.append(store.get_model(f"{FOLDER}/{name}", Kept))
        except ArtifactError:
            continue  # of another version of the product: the page says that nothing is measured
    return sorted(found, key=lambda one: one.tried_at, reverse=True)


def request() -> None:
    """Request a measurement from a build worker. Duplicate requests are merged."""
    enqueue("ops.measure_fidelity", {}, queue="build", key=LEASE)


def under_way() -> bool:
    return leases.is_held(LEASE) or Outbox.objects.filter(key=LEASE, sent_at=None).exists()


def measure(*, count: int | None = None) -> Kept:
    """Measure this process's backend and store the result. Raises NotMeasured after storing the reason."""
    name = chosen()
    result: Result | None
    try:
        result, problem = asyncio.run(_measure(name, count)), ""
    except (SandboxError, OSError, ValidationError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"[:500]
        result = next((one.result for one in kept() if one.backend == name), None)
    found = Kept(backend=name, tried_at=timezone.now(), problem=problem, result=result)
    artifacts().put_model(f"{FOLDER}/{name}", found)
    if problem:
        raise NotMeasured(problem)
    return found


async def _measure(name: str, count: int | None) -> Result:
    from sandbox import fidelity
    from sandbox.tasks.environments import EnvironmentStore

    machine = get_profile(PROFILE).machine
    environments = EnvironmentStore(env().data / "environments")
    backend = default_backend.__wrapped__()  # one of our own: others of this process may close the shared one
    try:
        return await fidelity.measure(
            backend,
            fidelity.checkouts(environments, machine, count or fidelity.CHECKOUTS),
            machine=machine,
            profile=fidelity.reference(),
            turns=fidelity.recorded_turns(),
            name=name,
        )
    finally:
        await backend.close()
