"""The Python package index that a sandbox sees: pages of the real index, filtered by the policy."""

from __future__ import annotations

import asyncio
import html
import json
from collections import Counter, OrderedDict
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote, urljoin

from mousebender.simple import ACCEPT_SUPPORTED, UnsupportedAPIVersion, UnsupportedMIMEType, parse_project_details
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sandbox.network.answers import Answer
from sandbox.network.archives import Held, hold, refuse_modules
from sandbox.network.audit import Decision
from sandbox.network.fetch import Fetcher, Meter, NotThere, RegistryFailed
from sandbox.network.kept import KeptFiles
from sandbox.network.paths import PythonFile, PythonPage
from sandbox.network.policy import Denied, PythonRules, RegistryPolicy, Rule
from sandbox.network.upstream import Upstream

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "text/html"
PAGES_KEPT = 128
NOTICE = "0+{}.by.the.network.policy"
"""Version of a file that only says what the policy did. Installers print version numbers where they print nothing of a
refused page, so this is how a person reads the reason; the file itself is always refused."""


class IndexFile(BaseModel):
    """One file of a package as an index lists it (PEP 691, PEP 700)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    filename: str = Field(max_length=300)
    url: str = Field(max_length=4000)
    hashes: dict[str, str] = {}
    requires_python: str | None = Field(None, alias="requires-python")
    yanked: bool | str = False
    core_metadata: bool | dict[str, str] | None = Field(None, alias="core-metadata")
    size: int | None = Field(None, ge=0)
    upload_time: AwareDatetime | None = Field(None, alias="upload-time")


class Found(BaseModel):
    """A file that can be judged: what it is named after is understood, and its digest is known."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    file: IndexFile
    version: Version
    sha256: str
    upstream: Upstream

    @property
    def metadata_sha256(self) -> str | None:
        known = self.file.core_metadata
        return known.get("sha256") if isinstance(known, dict) else None


class Page(BaseModel):
    """What the indexes list of one package, judged."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    allowed: dict[str, Found]
    hidden: dict[str, Rule]
    """File name → the rule that hides it."""


class PythonIndex:
    """For one sandbox; remembers the pages that it has judged."""

    def __init__(
        self,
        rules: PythonRules,
        policy: RegistryPolicy,
        upstreams: Sequence[Upstream],
        fetcher: Fetcher,
        kept: KeptFiles | None = None,
    ) -> None:
        self._kept = kept
        self._rules, self._policy, self._upstreams, self._fetcher = rules, policy, upstreams, fetcher
        self._pages: OrderedDict[str, Page] = OrderedDict()

    async def page(self, wanted: PythonPage, accept: str, meter: Meter) -> Answer:
        """The package's page in the form that the client accepts. Raises Denied, RegistryFailed, NotThere."""
        try:
            self._rules.allow_package(wanted.name)
        except Denied as denial:
            files = [_notice(wanted.name, "denied", yanked=False)]
            return _rendered(wanted.name, files, accept, rule=str(denial.rule), decision="denied", detail=str(denial))
        page = await self._page(wanted.name, meter)
        files = [_shown(wanted.name, found) for found in page.allowed.values()]
        if set(page.hidden.values()) - {Rule.UNVERIFIABLE} or not page.allowed:
            files.insert(0, _notice(wanted.name, "some.versions.denied", yanked=bool(page.allowed)))
        counts = Counter(page.hidden.values())
        return _rendered(wanted.name, files, accept, rule=" ".join(f"{rule}={n}" for rule, n in sorted(counts.items())))

    async def file(self, wanted: PythonFile, meter: Meter, *, head: bool) -> Answer:
        """A file whose digest was verified. Raises Denied, RegistryFailed, NotThere."""
        self._rules.allow_package(wanted.name)
        page = await self._page(wanted.name, meter)
        found = page.allowed.get(wanted.filename)
        if found is None:
            raise self._why_not(wanted, page)
        expected = found.metadata_sha256 if wanted.metadata else found.sha256
        if expected is None:
            raise NotThere
        if head and not wanted.metadata and found.file.size is not None:
            return Answer.head("application/octet-stream", found.file.size)
        url = found.file.url + (".metadata" if wanted.metadata else "")
        held = await self._held(expected) or await hold(self._fetcher.file(found.upstream, url, meter, listed=True))
        try:
            if held.sha256.hexdigest() != expected:
                raise Denied(
                    Rule.DIGEST, f"{wanted.filename} does not have the SHA-256 digest that its index names", 502
                )
            if self._kept is not None:
                await asyncio.to_thread(self._kept.put, expected, held.content, held.size)
            if not wanted.metadata:
                await refuse_modules(wanted.filename, held, self._rules.deny_modules)
        except BaseException:
            held.close()
            raise
        return Answer.of_file("application/octet-stream", held)

    async def _held(self, expected: str) -> Held | None:
        """The file as it was kept, if it is still what it was."""
        if self._kept is None or not self._kept.has(expected):
            return None
        try:
            held = await hold(self._kept.read(expected))
        except FileNotFoundError:  # pruned meanwhile
            return None
        if held.sha256.hexdigest() == expected:
            return held
        held.close()
        self._kept.forget(expected)
        return None

    def _why_not(self, wanted: PythonFile, page: Page) -> Exception:
        rule = page.hidden.get(wanted.filename)
        if rule is not None:
            return Denied(rule, f"{wanted.filename} {WORDS[rule]}")
        if wanted.filename.startswith(f"{_escaped(wanted.name)}-{NOTICE.format('some.versions.denied')}"):
            return Denied(Rule.PACKAGE, f"no version of {wanted.name} that the task may use")
        return NotThere()

    async def _page(self, name: str, meter: Meter) -> Page:
        if name in self._pages:
            self._pages.move_to_end(name)
            return self._pages[name]
        allowed: dict[str, Found] = {}
        hidden: dict[str, Rule] = {}
        missing = 0
        for upstream in self._upstreams:
            try:
                files = await self._listed(upstream, name, meter)
            except NotThere:
                missing += 1
                continue
            for file in files:
                if file.filename in allowed or file.filename in hidden:
                    continue  # as installers do: the first index that has it
                judged = self._judge(name, file, upstream)
                if isinstance(judged, Rule):
                    hidden[file.filename] = judged
                else:
                    allowed[file.filename] = judged
        if missing == len(self._upstreams):
            raise NotThere
        page = self._pages[name] = Page(allowed=allowed, hidden=hidden)
        while len(self._pages) > PAGES_KEPT:
            self._pages.popitem(last=False)
        return page

    async def _listed(self, upstream: Upstream, name: str, meter: Meter) -> list[IndexFile]:
        address = urljoin(upstream.url, f"{name}/")
        body, kind = await self._fetcher.page(upstream, address, ACCEPT_SUPPORTED, meter)
        try:
            return await asyncio.to_thread(parse_page, name, body, kind, address)
        except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RegistryFailed(f"the index's page of {name} cannot be understood ({type(error).__name__})") from None
        except (UnsupportedMIMEType, UnsupportedAPIVersion) as error:
            raise RegistryFailed(f"the index's page of {name} is of a kind that is not understood: {error}") from None

    def _judge(self, name: str, file: IndexFile, upstream: Upstream) -> Found | Rule:
        version = version_of(name, file.filename)
        sha256 = file.hashes.get("sha256", "").lower()
        if version is None or len(sha256) != 64:
            return Rule.UNVERIFIABLE
        highest = self._rules.max_versions.get(name)
        if highest is not None and Version(version.public) > Version(highest):
            return Rule.VERSION
        if (rule := self._policy.date_rule(file.upload_time)) is not None:
            return rule
        pins = self._rules.sha256.get(name)
        if pins is not None and sha256 not in pins:
            return Rule.PIN
        return Found(file=file, version=version, sha256=sha256, upstream=upstream)


def parse_page(name: str, body: bytes, kind: str, address: str) -> list[IndexFile]:
    """The files of a page; a large one takes a second, so not in the event loop. Raises ValueError, KeyError, TypeError,
    RecursionError, UnsupportedMIMEType or UnsupportedAPIVersion for what is no page."""
    try:
        details = parse_project_details(body.decode(), kind, name)
    except AssertionError as error:  # html.parser's answer to a malformed declaration
        raise ValueError(f"malformed HTML: {error}") from error
    files = [IndexFile.model_validate(entry) for entry in details["files"]]
    return [file.model_copy(update={"url": urljoin(address, file.url)}) for file in files]


WORDS = {
    Rule.VERSION: "is later than the highest version that the task may use",
    Rule.DATE: "was uploaded after the date that the task works at",
    Rule.UNDATED: "has no upload time in its index, and the task works at a date",
    Rule.PIN: "is not among the pinned files",
    Rule.UNVERIFIABLE: "has no SHA-256 digest in its index or no readable file name",
}


def version_of(name: str, filename: str) -> Version | None:
    """The version in a file's name, None when it is not a wheel or source archive of the package `name`."""
    try:
        if filename.endswith(".whl"):
            project, version, _, _ = parse_wheel_filename(filename)
        else:
            project, version = parse_sdist_filename(filename)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return version if project == canonicalize_name(name) else None


def _escaped(name: str) -> str:
    return name.replace("-", "_")


def _notice(name: str, what: str, *, yanked: bool) -> dict[str, object]:
    """A file that says what the policy did. Yanked, it is only shown when nothing else fits."""
    filename = f"{_escaped(name)}-{NOTICE.format(what)}-py3-none-any.whl"
    entry: dict[str, object] = {"filename": filename, "url": f"/files/{name}/{quote(filename)}", "hashes": {}}
    return entry | ({"yanked": "denied by the task's network policy"} if yanked else {})


def _shown(name: str, found: Found) -> dict[str, object]:
    file = found.file
    entry: dict[str, object] = {
        "filename": file.filename,
        "url": f"/files/{name}/{quote(file.filename)}",
        "hashes": {"sha256": found.sha256},
        "yanked": file.yanked,
    }
    if file.requires_python is not None:
        entry["requires-python"] = file.requires_python
    if file.size is not None:
        entry["size"] = file.size
    if file.upload_time is not None:
        entry["upload-time"] = _zulu(file.upload_time)
    if (digest := found.metadata_sha256) is not None:
        entry["core-metadata"] = {"sha256": digest}
    return entry


def _zulu(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def _rendered(
    name: str,
    files: list[dict[str, object]],
    accept: str,
    *,
    rule: str,
    decision: Decision = "allowed",
    detail: str = "",
) -> Answer:
    if JSON_TYPE in accept:
        page = {"meta": {"api-version": "1.0"}, "name": name, "files": files}
        return Answer.of_text(JSON_TYPE, json.dumps(page), rule=rule, decision=decision, detail=detail)
    links = "".join(_link(entry) for entry in files)
    text = (
        '<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.0">'
        f"<title>Links for {html.escape(name)}</title></head><body>\n{links}</body></html>\n"
    )
    return Answer.of_text(HTML_TYPE, text, rule=rule, decision=decision, detail=detail)


def _link(entry: dict[str, object]) -> str:
    hashes, metadata = entry["hashes"], entry.get("core-metadata")
    fragment = f"#sha256={hashes['sha256']}" if isinstance(hashes, dict) and hashes else ""
    attributes = {"href": f"{entry['url']}{fragment}"}
    if "requires-python" in entry:
        attributes["data-requires-python"] = str(entry["requires-python"])
    if isinstance(metadata, dict):
        attributes["data-core-metadata"] = attributes["data-dist-info-metadata"] = f"sha256={metadata['sha256']}"
    if yanked := entry.get("yanked"):
        attributes["data-yanked"] = "" if yanked is True else str(yanked)
    shown = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {shown}>{html.escape(str(entry['filename']))}</a><br>\n"
