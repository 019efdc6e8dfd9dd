"""The npm registry that a sandbox sees: package documents without the versions that the policy does not allow."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections import Counter, OrderedDict
from urllib.parse import quote, urljoin

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sandbox.network.answers import Answer
from sandbox.network.archives import hold
from sandbox.network.fetch import Fetcher, Meter, NotThere, RegistryFailed, join
from sandbox.network.paths import NpmDocument, NpmFile
from sandbox.network.policy import Denied, NpmRules, RegistryPolicy, Rule
from sandbox.network.semver import BadVersion, precedence
from sandbox.network.upstream import Upstream

FULL, SHORT = "application/json", "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8"
DOCUMENTS_KEPT = 128
_TIME: TypeAdapter[AwareDatetime] = TypeAdapter(AwareDatetime)


class Dist(BaseModel):
    """Where a version's archive is, and what proves it."""

    model_config = ConfigDict(extra="ignore")

    tarball: str = Field(max_length=4000)
    integrity: str = Field("", max_length=4000)


class Document(BaseModel):
    """What is used of a package's document; the versions' own fields go through as they are."""

    model_config = ConfigDict(extra="ignore")

    dist_tags: dict[str, str] = Field({}, alias="dist-tags")
    versions: dict[str, dict[str, object]] = {}
    time: dict[str, object] = {}
    modified: object = None


class Judged(BaseModel):
    """A document with the versions that are left, and the rules that hid the others."""

    name: str
    tags: dict[str, str]
    versions: dict[str, dict[str, object]]
    times: dict[str, object]
    dists: dict[str, Dist]
    hidden: dict[str, Rule]


class NpmRegistry:
    """For one sandbox; remembers the documents that it has judged."""

    def __init__(self, rules: NpmRules, policy: RegistryPolicy, upstream: Upstream, fetcher: Fetcher, own: str) -> None:
        self._rules, self._policy, self._upstream, self._fetcher = rules, policy, upstream, fetcher
        self._own = own
        """The address that the sandbox reaches this registry at; archives are named below it."""
        self._documents: OrderedDict[str, Judged] = OrderedDict()

    async def document(self, wanted: NpmDocument, meter: Meter) -> Answer:
        """Raises Denied, RegistryFailed, NotThere."""
        self._rules.allow_package(wanted.name)
        judged = await self._document(wanted.name, meter)
        if judged.hidden and not judged.versions:
            raise Denied(next(iter(judged.hidden.values())), f"no version of {wanted.name} that the task may use")
        body = {
            "name": judged.name,
            "dist-tags": judged.tags,
            "versions": {version: self._own_dist(judged, version) for version in judged.versions},
        }
        if judged.times:
            body["time"] = judged.times
        counts = Counter(judged.hidden.values())
        rule = " ".join(f"{rule}={n}" for rule, n in sorted(counts.items()))
        answer = Answer.of_text("application/json", json.dumps(body), rule=rule)
        if judged.hidden:
            answer.notice = f"some versions of {wanted.name} are denied by the task's network policy"
        return answer

    async def file(self, wanted: NpmFile, meter: Meter) -> Answer:
        """An archive whose digest was verified. Raises Denied, RegistryFailed, NotThere."""
        self._rules.allow_package(wanted.name)
        judged = await self._document(wanted.name, meter)
        version = next((one for one in judged.versions if _filename(wanted.name, one) == wanted.filename), None)
        if version is None:
            rule = next(
                (rule for one, rule in judged.hidden.items() if _filename(wanted.name, one) == wanted.filename), None
            )
            if rule is not None:
                raise Denied(rule, f"{wanted.filename} is not among the versions that the task may use")
            raise NotThere
        dist = judged.dists[version]
        held = await hold(
            self._fetcher.file(self._upstream, join(self._upstream.url, dist.tarball), meter, listed=True)
        )
        pins = self._rules.sha256.get(wanted.name)
        if held.sha512.digest() != _sha512(dist.integrity):
            held.close()
            raise Denied(
                Rule.DIGEST, f"{wanted.filename} does not have the SHA-512 digest that its registry names", 502
            )
        if pins is not None and held.sha256.hexdigest() not in pins:
            held.close()
            raise Denied(Rule.PIN, f"{wanted.filename} is not among the pinned files")
        return Answer.of_file("application/octet-stream", held)

    async def _document(self, name: str, meter: Meter) -> Judged:
        if name in self._documents:
            self._documents.move_to_end(name)
            return self._documents[name]
        accept = FULL if self._policy.before else SHORT  # only the full document holds times
        address = urljoin(self._upstream.url, quote(name, safe="@"))
        body, _ = await self._fetcher.page(self._upstream, address, accept, meter)
        try:
            judged = await asyncio.to_thread(lambda: self._judge(name, Document.model_validate_json(body)))
        except (ValidationError, RecursionError) as error:
            raise RegistryFailed(f"the document of {name} cannot be understood ({type(error).__name__})") from None
        self._documents[name] = judged
        while len(self._documents) > DOCUMENTS_KEPT:
            self._documents.popitem(last=False)
        return judged

    def _judge(self, name: str, document: Document) -> Judged:
        versions: dict[str, dict[str, object]] = {}
        dists: dict[str, Dist] = {}
        hidden: dict[str, Rule] = {}
        for version, entry in document.versions.items():
            dist = Dist.model_validate(entry.get("dist", {}))
            if (rule := self._refusal(name, version, dist, document.time.get(version))) is not None:
                hidden[version] = rule
            else:
                versions[version], dists[version] = entry, dist
        tags = {tag: version for tag, version in document.dist_tags.items() if version in versions}
        if versions and "latest" not in tags:
            stable = [version for version in versions if precedence(version)[3]]
            tags["latest"] = max(stable or versions, key=precedence)
        times = {version: document.time[version] for version in versions if version in document.time}
        return Judged(name=name, tags=tags, versions=versions, times=times, dists=dists, hidden=hidden)

    def _refusal(self, name: str, version: str, dist: Dist, published: object) -> Rule | None:
        highest = self._rules.max_versions.get(name)
        try:
            order = precedence(version)
        except BadVersion:
            return Rule.UNVERIFIABLE
        if _sha512(dist.integrity) is None:
            return Rule.UNVERIFIABLE
        if highest is not None and order > precedence(highest):
            return Rule.VERSION
        try:
            return self._policy.date_rule(None if published is None else _TIME.validate_python(published))
        except ValidationError:
            return self._policy.date_rule(None)

    def _own_dist(self, judged: Judged, version: str) -> dict[str, object]:
        filename = _filename(judged.name, version)
        dist = {
            "tarball": f"{self._own}/npm/{judged.name}/-/{filename}",
            "integrity": judged.dists[version].integrity,
        }
        return judged.versions[version] | {"dist": dist}


def _filename(name: str, version: str) -> str:
    return f"{name.rpartition('/')[2]}-{version}.tgz"


def _sha512(integrity: str) -> bytes | None:
    """The SHA-512 digest among the digests of a Subresource Integrity text."""
    for word in integrity.split():
        kind, _, value = word.partition("-")
        if kind == "sha512":
            try:
                digest = base64.b64decode(value.partition("?")[0], validate=True)
            except binascii.Error:
                continue
            if len(digest) == 64:
                return digest
    return None
