"""A package registry on the loopback, with packages made here: a Python index, an npm registry and a Go proxy."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from sandbox.network.names import cargo_path

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def wheel(name: str, version: str, modules: dict[str, str] | None = None, requires: tuple[str, ...] = ()) -> bytes:
    """A pure wheel that holds these modules (by default one named after the package, which knows its version)."""
    safe = name.replace("-", "_")
    modules = modules if modules is not None else {f"{safe}.py": f"VERSION = {version!r}\n"}
    info = f"{safe}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = modules | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in (files | {f"{info}/RECORD": record}).items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return packed.getvalue()


def tarball(files: dict[str, str]) -> bytes:
    """The same bytes each time."""
    packed = io.BytesIO()
    zipped = gzip.GzipFile(fileobj=packed, mode="wb", mtime=0)
    with zipped, tarfile.open(fileobj=zipped, mode="w") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def metadata_of(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))


@dataclass
class Asked:
    """A request that came to the registry."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class LocalRegistry:
    """Serves on the loopback while entered. `special` overrides what a path answers."""

    html: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    """Address path → content."""
    projects: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    documents: dict[str, dict[str, object]] = field(default_factory=dict)
    special: dict[str, Handler] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `hang` was asked."""
    _end: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def index(self) -> str:
        return f"{self.origin}/simple/"

    def paths(self) -> list[str]:
        return [one.path for one in self.asked]

    def add(self, name: str, filename: str, content: bytes, **fields: object) -> dict[str, object]:
        """List a file of a Python package; `fields` replace or add what the index says of it."""
        entry: dict[str, object] = {
            "filename": filename,
            "url": f"../../packages/{filename}",
            "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
            "size": len(content),
            **{key.replace("_", "-"): value for key, value in fields.items()},
        }
        self.files[f"/packages/{filename}"] = content
        self.projects.setdefault(name, []).append(entry)
        return entry

    def add_wheel(self, name: str, version: str, *, requires: tuple[str, ...] = (), **fields: object) -> bytes:
        content = wheel(name, version, requires=requires)
        filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        if "core_metadata" not in fields:
            metadata = metadata_of(content)
            fields["core_metadata"] = {"sha256": hashlib.sha256(metadata).hexdigest()}
            self.files[f"/packages/{filename}.metadata"] = metadata
        self.add(name, filename, content, **fields)
        return content

    def add_npm(self, name: str, version: str, published: str | None = None, **manifest: object) -> bytes:
        about = {"name": name, "version": version, **manifest}
        content = tarball(
            {"package/package.json": json.dumps(about), "package/index.js": f"module.exports = '{version}'"}
        )
        path = f"/npm/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        self.files[path] = content
        digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
        document = self.documents.setdefault(name, {"name": name, "dist-tags": {}, "versions": {}, "time": {}})
        document["dist-tags"]["latest"] = version  # type: ignore[index]
        document["versions"][version] = {  # type: ignore[index]
            **about,
            "dist": {"tarball": f"{self.origin}{path}", "integrity": f"sha512-{digest}"},
        }
        if published:
            document["time"][version] = published  # type: ignore[index]
        return content

    def add_crate(self, name: str, version: str, pubtime: str | None = None, **fields: object) -> bytes:
        """List a crate's version; `fields` replace or add what the index says of it."""
        stem = f"{name}-{version}"
        requires = "".join(f'{dep["name"]} = "{dep["req"]}"\n' for dep in fields.get("deps", ()))  # type: ignore[attr-defined]
        manifest = f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2021"\n\n[dependencies]\n{requires}'
        source = f'pub const VERSION: &str = "{version}";\n'
        content = tarball({f"{stem}/Cargo.toml": manifest, f"{stem}/src/lib.rs": source})
        self.files["/cargo/config.json"] = json.dumps({"dl": f"{self.origin}/cargo-files"}).encode()
        self.files[f"/cargo-files/{name}/{version}/download"] = content
        entry = {"name": name, "vers": version, "deps": [], "features": {}, "yanked": False}
        entry |= {"cksum": hashlib.sha256(content).hexdigest(), **({"pubtime": pubtime} if pubtime else {}), **fields}
        path = f"/cargo/{cargo_path(name.lower())}"
        self.files[path] = self.files.get(path, b"") + json.dumps(entry).encode() + b"\n"
        return content

    async def hang(self, request: web.Request) -> web.StreamResponse:
        """An answer that never comes."""
        self.hanging.set()
        await self._end.wait()
        return web.Response()

    async def __aenter__(self) -> LocalRegistry:
        runner = self._runner = web.ServerRunner(web.Server(self._answer, handler_cancellation=True, access_log=None))  # type: ignore[arg-type]
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._end.set()
        await asyncio.wait_for(self._runner.shutdown(), 10)
        await asyncio.wait_for(self._runner.cleanup(), 10)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.raw_path
        self.asked.append(Asked(request.method, path, dict(request.headers)))
        if path in self.special:
            return await self.special[path](request)
        if path in self.files:
            return web.Response(body=self.files[path], content_type="application/octet-stream")
        name = path.removeprefix("/simple/").removesuffix("/")
        if path.startswith("/simple/") and name in self.projects:
            return self._page(name)
        name = path.removeprefix("/npm/").replace("%2f", "/").replace("%2F", "/")
        if path.startswith("/npm/") and name in self.documents:
            return web.json_response(self.documents[name])
        return web.Response(status=404, text="not here")

    def _page(self, name: str) -> web.Response:
        entries = self.projects[name]
        if not self.html:
            page = {"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": entries}
            return web.Response(text=json.dumps(page), content_type=JSON_TYPE)
        links = ""
        for entry in entries:
            hashes = entry["hashes"]
            assert isinstance(hashes, dict)
            fragment = "".join(f"#{kind}={digest}" for kind, digest in hashes.items())
            links += f'<a href="{entry["url"]}{fragment}">{entry["filename"]}</a>\n'
        return web.Response(text=f"<!DOCTYPE html><html><body>{links}</body></html>", content_type="text/html")
