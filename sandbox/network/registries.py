"""Route a request to the registry that answers it."""

from __future__ import annotations

from aiohttp import web

from sandbox.network.answers import Answer
from sandbox.network.cargo_registry import CargoRegistry
from sandbox.network.fetch import Fetcher, Meter
from sandbox.network.go_proxy import GoProxy
from sandbox.network.kept import KeptFiles
from sandbox.network.npm_registry import NpmRegistry
from sandbox.network.paths import (
    CargoConfig,
    CargoFile,
    CargoIndex,
    GoQuery,
    NpmDocument,
    NpmFile,
    PythonFile,
    PythonPage,
    Target,
)
from sandbox.network.policy import Denied, RegistryPolicy, Rule
from sandbox.network.python_index import PythonIndex
from sandbox.network.upstream import Upstreams


class Registries:
    """The registries that a policy opens, for one sandbox."""

    def __init__(self, policy: RegistryPolicy, upstreams: Upstreams, fetcher: Fetcher, own: str) -> None:
        kept = KeptFiles(upstreams.kept_files) if upstreams.kept_files else None
        self._python = PythonIndex(policy.python, policy, upstreams.python, fetcher, kept) if policy.python else None
        self._npm = (
            NpmRegistry(policy.npm, policy, upstreams.npm, fetcher, own) if policy.npm and upstreams.npm else None
        )
        self._cargo = (
            CargoRegistry(policy.cargo, policy, upstreams.cargo, fetcher, own)
            if policy.cargo and upstreams.cargo
            else None
        )
        self._go = GoProxy(policy.go, policy, upstreams.go, fetcher) if policy.go and upstreams.go else None

    async def answer(self, target: Target, request: web.BaseRequest, meter: Meter) -> Answer:
        """Raises Denied, RegistryFailed, NotThere."""
        head = request.method == "HEAD"
        match target:
            case PythonPage() if self._python:
                return await self._python.page(target, request.headers.get("Accept", ""), meter)
            case PythonFile() if self._python:
                return await self._python.file(target, meter, head=head)
            case NpmDocument() if self._npm:
                return await self._npm.document(target, meter)
            case NpmFile() if self._npm:
                return await self._npm.file(target, meter)
            case GoQuery() if self._go:
                return await self._go.answer(target, meter)
            case CargoConfig() | CargoIndex() | CargoFile() if self._cargo:
                return await self._cargo.answer(target, meter)
        raise Denied(Rule.REGISTRY, "no registry of this kind is open to this task")
