"""Registry policy: what a sandbox may fetch from package registries, and how much.

A policy is plain data: it can live in a task bundle, a run's configuration or a file. Packages that it does not allow
are hidden, or refused with a text that names the policy (`Denied`).
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

from sandbox.network.names import BadName, cargo_name, go_module, npm_name, python_name
from sandbox.network.semver import BadVersion, precedence

MIB = 1 << 20


class Rule(StrEnum):
    """Why something was refused; the word that the audit log carries."""

    METHOD = "method"
    REQUEST = "request"
    """Not a path that this proxy serves: another host, an odd name, a listing of everything."""
    REGISTRY = "registry"
    """The policy opens no registry of that kind."""
    PACKAGE = "package"
    MODULE = "module"
    """The archive holds an importable module that is denied, under whatever name it was published."""
    VERSION = "version"
    DATE = "date"
    UNDATED = "undated"
    PIN = "pin"
    UNVERIFIABLE = "unverifiable"
    """The registry names no digest for the file, or the file's name cannot be understood."""
    DIGEST = "digest"
    HOST = "host"
    ADDRESS = "address"
    SIZE = "size"
    REQUESTS = "requests"
    BYTES = "bytes"
    AUDIT = "audit"
    """The audit log cannot be written, so nothing is answered."""


class Denied(Exception):
    """The policy refuses. The text is for the person or agent inside; `rule` for the audit log."""

    def __init__(self, rule: Rule, reason: str, status: int = 403) -> None:
        super().__init__(f"denied by the task's network policy: {reason}")
        self.rule, self.status = rule, status


class PolicyError(ValueError):
    """A policy that makes no sense; the message names the field and the remedy."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Digests = Annotated[frozenset[str], Field(min_length=1)]


class PackageRules(_Model):
    """What one kind of registry may give. Names are normalised the way that registry does."""

    deny: frozenset[str] = frozenset()
    """Packages that do not exist for the sandbox: the task's own target under all its names."""
    max_versions: dict[str, str] = {}
    """Package → highest version it may get."""
    sha256: dict[str, Digests] = {}
    """Package → hex SHA-256 digests of the only files of it that may be fetched."""
    only_pinned: bool = False
    """Nothing but the packages of `sha256`."""

    @staticmethod
    def normal(name: str) -> str:
        """The one spelling of a package name. Raises BadName."""
        raise NotImplementedError

    @staticmethod
    def check_version(version: str) -> None:
        """Raises ValueError for a version that cannot be compared."""
        raise NotImplementedError

    def allow_package(self, name: str) -> None:
        """Raises Denied when nothing of this package (its normal name) may be fetched."""
        if name in self.deny:
            raise Denied(Rule.PACKAGE, f"package {name} is not available to this task")
        if self.only_pinned and name not in self.sha256:
            raise Denied(Rule.PIN, f"package {name} is not among the pinned packages")

    @field_validator("deny")
    @classmethod
    def _normal_names(cls, names: frozenset[str]) -> frozenset[str]:
        return frozenset(_normal(cls, name, "deny") for name in names)

    @field_validator("max_versions")
    @classmethod
    def _versions(cls, versions: dict[str, str]) -> dict[str, str]:
        for name, version in versions.items():
            try:
                cls.check_version(version)
            except ValueError:
                raise PolicyError(
                    f"max_versions: {name} = {version!r} is not a version; write one like 1.2.3"
                ) from None
        return {_normal(cls, name, "max_versions"): version for name, version in versions.items()}

    @field_validator("sha256")
    @classmethod
    def _digests(cls, pins: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        for name, digests in pins.items():
            for digest in digests:
                if not re.fullmatch(r"[0-9a-f]{64}", digest):
                    raise PolicyError(f"sha256: {name} has {digest!r}; write 64 lower-case hexadecimal digits")
        return {_normal(cls, name, "sha256"): digests for name, digests in pins.items()}


def _normal(rules: type[PackageRules], name: str, field: str) -> str:
    try:
        return rules.normal(name)
    except BadName as error:
        raise PolicyError(f"{field}: {error}; write a package's name") from None


class PythonRules(PackageRules):
    deny_modules: frozenset[str] = frozenset()
    """Importable top-level modules that no archive may hold, whatever it is called: renamed copies of the target."""

    @staticmethod
    def normal(name: str) -> str:
        return python_name(name)

    @staticmethod
    def check_version(version: str) -> None:
        try:
            Version(version)
        except InvalidVersion as error:
            raise ValueError(str(error)) from None

    @field_validator("deny_modules")
    @classmethod
    def _modules(cls, names: frozenset[str]) -> frozenset[str]:
        for name in names:
            if not name.isidentifier():
                raise PolicyError(f"deny_modules: {name!r} is not a module's name; write what `import` takes")
        return names


class NpmRules(PackageRules):
    @staticmethod
    def normal(name: str) -> str:
        return npm_name(name)

    @staticmethod
    def check_version(version: str) -> None:
        _semantic(version)


class GoRules(PackageRules):
    @staticmethod
    def normal(name: str) -> str:
        return go_module(name)

    @staticmethod
    def check_version(version: str) -> None:
        _semantic(version.removeprefix("v"))

    @field_validator("sha256")
    @classmethod
    def _no_pins(cls, pins: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        if pins:
            raise PolicyError(
                "sha256: the Go proxy protocol names no digests; commit a go.sum, which go itself verifies"
            )
        return pins


class CargoRules(PackageRules):
    @staticmethod
    def normal(name: str) -> str:
        return cargo_name(name)

    @staticmethod
    def check_version(version: str) -> None:
        _semantic(version)


def _semantic(version: str) -> None:
    try:
        precedence(version)
    except BadVersion as error:
        raise ValueError(str(error)) from None


class Bounds(_Model):
    """How much one sandbox may cause. Beyond `requests` and `bytes` everything is refused."""

    requests: PositiveInt = 5000
    bytes: PositiveInt = 4096 * MIB
    """Body bytes fetched from registries, and likewise body bytes given to the sandbox."""
    file_bytes: PositiveInt = 1024 * MIB
    """One package file; it waits in a temporary file until its digest is verified."""
    page_bytes: PositiveInt = 64 * MIB
    """One page of metadata, unpacked."""
    connections: PositiveInt = 16
    """Open at a time; more wait in the sandbox's own kernel queue."""
    request_seconds: PositiveFloat = 300.0
    """From the first byte of a request to the last of its answer."""
    connect_seconds: PositiveFloat = 15.0
    silence_seconds: PositiveFloat = 30.0
    """Without a byte from a registry, or without a request on an open connection."""


class RegistryPolicy(_Model):
    """Registries only: the kinds that are opened, the packages that are not, and the bounds.

    A kind without rules is closed. A date cut needs upload times: where a registry gives none, the file is refused
    unless `undated` says otherwise.
    """

    python: PythonRules | None = PythonRules()
    npm: NpmRules | None = None
    go: GoRules | None = None
    cargo: CargoRules | None = None
    before: AwareDatetime | None = None
    """Only what was uploaded earlier."""
    undated: Literal["deny", "allow"] = "deny"
    bounds: Bounds = Bounds()

    def date_rule(self, uploaded: datetime | None) -> Rule | None:
        """The rule that refuses something uploaded at this time, if any."""
        if self.before is None:
            return None
        if uploaded is None:
            return Rule.UNDATED if self.undated == "deny" else None
        return Rule.DATE if uploaded >= self.before else None
