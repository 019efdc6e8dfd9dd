"""The Cargo registry that a sandbox sees: a sparse index without the versions that the policy does not allow."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from urllib.parse import quote, urljoin

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sandbox.network.answers import Answer
from sandbox.network.archives import hold
from sandbox.network.fetch import Fetcher, Meter, NotThere, RegistryFailed, join
from sandbox.network.names import BadName, cargo_name, cargo_path
from sandbox.network.paths import CargoConfig, CargoFile, CargoIndex
from sandbox.network.policy import CargoRules, Denied, RegistryPolicy, Rule
from sandbox.network.semver import BadVersion, precedence
from sandbox.network.upstream import Upstream

CRATES_KEPT = 512
TEMPLATE = "/{crate}/{version}/download"
"""Where a crate's file is below an address that names no part of it."""


class Config(BaseModel):
    """What a registry says of itself."""

    model_config = ConfigDict(extra="ignore")

    dl: str = Field(max_length=4000)


class Entry(BaseModel):
    """One version, as a line of the index; what is not read here goes through as it is."""

    model_config = ConfigDict(extra="ignore")

    name: str
    vers: str = Field(max_length=256)
    cksum: str = Field(pattern=r"^[0-9a-f]{64}$")
    pubtime: AwareDatetime | None = None
    """When it was uploaded; only newer indexes say so."""


@dataclass(slots=True)
class Judged:
    """A crate's lines that are left, and the rules that hid the other versions."""

    lines: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """Version → SHA-256 digest of its file."""
    hidden: dict[str, Rule] = field(default_factory=dict)


class CargoRegistry:
    """For one sandbox; remembers the crates that it has judged."""

    def __init__(
        self, rules: CargoRules, policy: RegistryPolicy, upstream: Upstream, fetcher: Fetcher, own: str
    ) -> None:
        self._rules, self._policy, self._upstream, self._fetcher = rules, policy, upstream, fetcher
        self._own = own
        """The address that the sandbox reaches this registry at."""
        self._template = ""
        self._crates: OrderedDict[str, Judged] = OrderedDict()

    async def answer(self, wanted: CargoConfig | CargoIndex | CargoFile, meter: Meter) -> Answer:
        """Raises Denied, RegistryFailed, NotThere."""
        if isinstance(wanted, CargoConfig):
            return Answer.of_text("application/json", json.dumps({"dl": f"{self._own}/cargo/crates"}))
        self._rules.allow_package(cargo_name(wanted.name))
        judged = await self._crate(wanted.name, meter)
        if isinstance(wanted, CargoIndex):
            return _index(wanted.name, judged)
        return await self._file(wanted, judged, meter)

    async def _file(self, wanted: CargoFile, judged: Judged, meter: Meter) -> Answer:
        """A crate's file whose digest was verified."""
        digest = judged.files.get(wanted.version)
        if digest is None:
            if (rule := judged.hidden.get(wanted.version)) is not None:
                raise Denied(rule, f"{wanted.name} {wanted.version} is not among the versions that the task may use")
            raise NotThere
        address = await self._address(wanted, digest, meter)
        held = await hold(self._fetcher.file(self._upstream, address, meter, listed=True))
        if held.sha256.hexdigest() != digest:
            held.close()
            text = f"{wanted.name} {wanted.version} does not have the SHA-256 digest that its registry names"
            raise Denied(Rule.DIGEST, text, 502)
        return Answer.of_file("application/octet-stream", held)

    async def _address(self, wanted: CargoFile, digest: str, meter: Meter) -> str:
        """Where the registry keeps the file."""
        if not self._template:
            body, _ = await self._fetcher.page(self._upstream, urljoin(self._upstream.url, "config.json"), "*/*", meter)
            try:
                self._template = Config.model_validate_json(body).dl
            except ValidationError:
                raise RegistryFailed("the registry's config.json cannot be understood") from None
        prefix = cargo_path(wanted.name).rpartition("/")[0]
        parts = {
            "{crate}": quote(wanted.name),
            "{version}": quote(wanted.version),
            "{prefix}": prefix,
            "{lowerprefix}": prefix.lower(),
            "{sha256-checksum}": digest,
        }
        address = self._template
        if not any(part in address for part in parts):
            address = address.rstrip("/") + TEMPLATE
        for part, text in parts.items():
            address = address.replace(part, text)
        return join(self._upstream.url, address)

    async def _crate(self, name: str, meter: Meter) -> Judged:
        key = name.lower()  # `a-b` and `a_b` are one crate, but lie at two places of an index
        if key in self._crates:
            self._crates.move_to_end(key)
            return self._crates[key]
        body, _ = await self._fetcher.page(self._upstream, urljoin(self._upstream.url, cargo_path(key)), "*/*", meter)
        try:
            judged = self._judge(key, body.decode())
        except UnicodeDecodeError:
            raise RegistryFailed(f"the index's answer about {name} is not text") from None
        self._crates[key] = judged
        while len(self._crates) > CRATES_KEPT:
            self._crates.popitem(last=False)
        return judged

    def _judge(self, name: str, text: str) -> Judged:
        judged = Judged()
        for line in filter(None, text.split("\n")):
            try:
                entry = Entry.model_validate_json(line)
                same = cargo_name(entry.name) == cargo_name(name)
            except (ValidationError, BadName, RecursionError):
                judged.hidden[f"line {len(judged.hidden)}"] = Rule.UNVERIFIABLE
                continue
            rule = self._refusal(name, entry) if same else Rule.UNVERIFIABLE
            if rule is not None:
                judged.hidden[entry.vers] = rule
            else:
                judged.lines.append(line)
                judged.files[entry.vers] = entry.cksum
        return judged

    def _refusal(self, name: str, entry: Entry) -> Rule | None:
        highest, pins = self._rules.max_versions.get(cargo_name(name)), self._rules.sha256.get(cargo_name(name))
        try:
            order = precedence(entry.vers)
        except BadVersion:
            return Rule.UNVERIFIABLE
        if pins is not None and entry.cksum not in pins:
            return Rule.PIN
        if highest is not None and order > precedence(highest):
            return Rule.VERSION
        return self._policy.date_rule(entry.pubtime)


def _index(name: str, judged: Judged) -> Answer:
    if judged.hidden and not judged.lines:
        raise Denied(next(iter(judged.hidden.values())), f"no version of {name} that the task may use")
    counts = Counter(judged.hidden.values())
    rule = " ".join(f"{rule}={n}" for rule, n in sorted(counts.items()))
    return Answer.of_text("text/plain; charset=utf-8", "".join(f"{line}\n" for line in judged.lines), rule=rule)
