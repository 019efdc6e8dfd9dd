"""Builds environments and mutation tasks from the locked source distributions."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from composer_web.accounts.models import User
from composer_web.core.artifacts import artifacts
from composer_web.core.errors import UserError
from composer_web.core.queue import leases
from composer_web.repositories import installing, services
from composer_web.repositories.models import Environment
from composer_web.repositories.places import store
from sandbox.backends.base import SandboxError
from sandbox.errors import PackageError, TaskError
from sandbox.packages.build import BuiltPackage, build_package_environments, with_backend
from sandbox.repositories.pins import read_lock
from sandbox.tasks.leaks import scan_environment
from sandbox.tasks.spec import TaskSpec

LEASE_SECONDS = 30.0


def locked_packages() -> dict[str, str]:
    """Packages that environments can be built from: name → `name==version`."""
    return {name: f"{name}=={pin.version}" for name, pin in read_lock().items()}


def request_package(*, name: str, actor: User | None = None) -> Environment:
    """Ask for the environment of a locked package. Raises UserError that names the packages there are."""
    known = locked_packages()
    if name not in known:
        raise UserError(
            "package", f"package {name!r} is not pinned in packages.lock; there are: {', '.join(sorted(known))}"
        )
    return services.request_build(name=name, source=known[name], actor=actor)


def build_environment(environment_id: int) -> str:
    """Build a requested environment under a lease; returns what became of it."""
    claimed = services.claim(environment_id=environment_id, owner=leases.identity("build"), seconds=LEASE_SECONDS)
    if claimed is None:
        return "nothing to do"
    environment, held = claimed
    leases.keeper.keep(held)
    log_key = f"builds/{environment.pk}-{held.token}.log.zst"
    if environment.repository is not None:
        return installing.build(environment, held, log_key)
    try:
        (built,) = build_package_environments(store(), [environment.name])
        detail = describe(built)
    except (TaskError, SandboxError, OSError) as error:
        artifacts().put(log_key, traceback.format_exc().encode())
        services.fail(environment=environment, held=held, cause=str(error)[:2000], log_key=log_key)
        return f"failed: {error}"
    finally:
        leases.keeper.drop(held)
    artifacts().put(log_key, build_report(built).encode())
    services.finish(environment=environment, held=held, digest=built.environment.digest, detail=detail, log_key=log_key)
    return "ready"


def describe(built: BuiltPackage) -> dict[str, object]:
    """What is known of a built environment. Raises PackageError when its image would give fixes away."""
    checkout = store().repository(built.environment.digest)
    if leaks := scan_environment(store(), built.environment):
        raise PackageError(f"{built.name}: its image would give fixes away: {leaks[0]}", remedy="Build it anew")
    return {
        "leak_scan": "nothing found",
        "bytes": sum(path.lstat().st_size for path in checkout.rglob("*") if path.is_file()),
        "version": built.version,
        "tests": len(built.tests),
        "test_seconds": round(sum(built.tests.values()), 2),
        "flaky": len(built.flaky),
        "functions_covered": len(built.covered),
        "source_roots": list(built.source_roots),
    }


def build_report(built: BuiltPackage) -> str:
    """The build log for people: what was found and what each stable test takes."""
    lines = [
        f"{built.name} {built.version}: {len(built.tests)} stable tests, "
        f"{len(built.flaky)} flaky, {len(built.covered)} functions covered"
    ]
    lines += [f"{seconds:8.3f} s  {test}" for test, seconds in built.tests.items()]
    lines += [f"   flaky    {test}" for test in built.flaky]
    return "\n".join(lines) + "\n"


def mutation_specs(*, packages: Sequence[str], count: int, seed: int, split: str) -> list[TaskSpec]:
    """`count` mutation tasks of each package (built first where needed, and registered). Raises TaskError, SandboxError."""
    from sandbox.generators.registry import generate_tasks

    root = store()
    built = build_package_environments(root, list(packages))
    for package in built:
        services.register_ready(
            name=package.name,
            source=f"{package.name}=={package.version}",
            digest=package.environment.digest,
            detail=describe(package),
        )

    async def collect(backend: object) -> list[TaskSpec]:
        found: list[TaskSpec] = []
        for package in built:
            async for task in generate_tasks(root, package, backend=backend, count=count, seed=seed, split=split):  # type: ignore[arg-type]
                found.append(task)
        return found

    specs: list[TaskSpec] = with_backend(collect)
    return specs
