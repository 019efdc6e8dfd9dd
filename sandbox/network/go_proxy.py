"""The Go module proxy that a sandbox sees: the real one's answers for modules and versions that the policy allows."""

from __future__ import annotations

import json
import re
from urllib.parse import urljoin

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sandbox.network.answers import Answer
from sandbox.network.archives import hold
from sandbox.network.fetch import Fetcher, Meter, RegistryFailed
from sandbox.network.names import go_module
from sandbox.network.paths import GoQuery
from sandbox.network.policy import Denied, GoRules, RegistryPolicy, Rule
from sandbox.network.semver import BadVersion, precedence
from sandbox.network.upstream import Upstream

TEXT = "text/plain; charset=utf-8"


class Info(BaseModel):
    """A version and when it was committed."""

    model_config = ConfigDict(extra="ignore")

    version: str = Field(alias="Version", max_length=256)
    time: AwareDatetime | None = Field(None, alias="Time")


class GoProxy:
    """For one sandbox. The protocol names no digests: `go` verifies against the checkout's own go.sum."""

    def __init__(self, rules: GoRules, policy: RegistryPolicy, upstream: Upstream, fetcher: Fetcher) -> None:
        self._rules, self._policy, self._upstream, self._fetcher = rules, policy, upstream, fetcher
        self._infos: dict[tuple[str, str], Info] = {}

    async def answer(self, wanted: GoQuery, meter: Meter) -> Answer:
        """Raises Denied, RegistryFailed, NotThere."""
        self._allow_module(wanted.module)
        if wanted.action == "list":
            body = await self._text(wanted.module, "@v/list", meter)
            kept = [version for version in body.split() if self._version_rule(wanted.module, version) is None]
            hidden = len(body.split()) - len(kept)
            rule = f"{Rule.VERSION}={hidden}" if hidden else ""
            return Answer.of_text(TEXT, "".join(f"{version}\n" for version in kept), rule=rule)
        if wanted.action == "latest":
            info = _info(await self._text(wanted.module, "@latest", meter))
            await self._allow_version(wanted.module, info.version, meter)
            time = {"Time": info.time.isoformat().replace("+00:00", "Z")} if info.time else {}
            return Answer.of_text("application/json", json.dumps({"Version": info.version} | time))
        await self._allow_version(wanted.module, wanted.version, meter)
        path = f"@v/{_escape(wanted.version)}.{wanted.action}"
        if wanted.action != "zip":
            return Answer.of_text(TEXT, await self._text(wanted.module, path, meter))
        address = self._address(wanted.module, path)
        return Answer.of_file(
            "application/zip", await hold(self._fetcher.file(self._upstream, address, meter, listed=False))
        )

    def _allow_module(self, module: str) -> None:
        """A denied module takes along the modules below it: they come from its repository."""
        parts = go_module(module).split("/")
        for length in range(1, len(parts) + 1):
            if "/".join(parts[:length]) in self._rules.deny:
                raise Denied(Rule.PACKAGE, f"module {module} is not available to this task")
        self._rules.allow_package(go_module(module))

    async def _allow_version(self, module: str, version: str, meter: Meter) -> None:
        if (rule := self._version_rule(module, version)) is not None:
            raise Denied(rule, f"{module} {version} is later than the highest version that the task may use")
        if self._policy.before is None:
            return
        if (module, version) not in self._infos:
            self._infos[module, version] = _info(await self._text(module, f"@v/{_escape(version)}.info", meter))
        if (rule := self._policy.date_rule(self._infos[module, version].time)) is not None:
            raise Denied(rule, f"{module} {version} is not from before the date that the task works at")

    def _version_rule(self, module: str, version: str) -> Rule | None:
        highest = self._rules.max_versions.get(go_module(module))
        if highest is None:
            return None
        try:
            later = precedence(version.removeprefix("v")) > precedence(highest.removeprefix("v"))
        except BadVersion:
            return Rule.VERSION  # a branch or a commit cannot be compared
        return Rule.VERSION if later else None

    async def _text(self, module: str, path: str, meter: Meter) -> str:
        body, _ = await self._fetcher.page(self._upstream, self._address(module, path), "*/*", meter)
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise RegistryFailed(f"the answer about {module} is not text") from None

    def _address(self, module: str, path: str) -> str:
        return urljoin(self._upstream.url, f"{_escape(module)}/{path}")


def _escape(text: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "!" + match.group(0).lower(), text)


def _info(text: str) -> Info:
    try:
        return Info.model_validate_json(text)
    except ValidationError as error:
        raise RegistryFailed(f"a version's information cannot be understood ({error.error_count()} errors)") from None
