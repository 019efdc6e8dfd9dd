"""Network policy: a sandbox that may fetch packages, of the registries and in the versions that its task allows.

`registry_only` makes the `NetPolicy` for `Backend.start`; docs/sandbox/network.md has an example.
"""

from __future__ import annotations

from sandbox.network.audit import AuditFile, AuditRecord
from sandbox.network.gateway import registry_only
from sandbox.network.policy import Bounds, CargoRules, GoRules, NpmRules, PythonRules, RegistryPolicy
from sandbox.network.upstream import Upstream, Upstreams, discover

__all__ = [
    "AuditFile",
    "AuditRecord",
    "Bounds",
    "CargoRules",
    "GoRules",
    "NpmRules",
    "PythonRules",
    "RegistryPolicy",
    "Upstream",
    "Upstreams",
    "discover",
    "registry_only",
]
