"""The filtered npm registry and Go module proxy."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from sandbox.network.gateway import RegistryGateway
from sandbox.network.policy import GoRules, NpmRules, RegistryPolicy
from tests.sandbox.network.local_registry import LocalRegistry
from tests.sandbox.network.running import proxy_of, upstreams_of

DENIED = "denied by the task's network policy"
CUT = datetime(2024, 5, 1, tzinfo=UTC)


def npm(before: datetime | None = None, **rules: object) -> RegistryPolicy:
    return RegistryPolicy(python=None, npm=NpmRules.model_validate(rules), before=before)


def go(before: datetime | None = None, **rules: object) -> RegistryPolicy:
    return RegistryPolicy(python=None, go=GoRules.model_validate(rules), before=before)


@pytest.mark.parametrize("address", ["/npm/@scope%2flib", "/npm/@scope/lib", "/npm/@Scope%2FLib"])
async def test_documents_and_archives_go_through(registry: LocalRegistry, address: str) -> None:
    content = registry.add_npm("@scope/lib", "1.2.3", dependencies={"left": "^1.0.0"})
    async with proxy_of(npm(), upstreams_of(registry)) as proxy:
        document = json.loads((await proxy.get(address)).body)
        version = document["versions"]["1.2.3"]
        assert document["dist-tags"] == {"latest": "1.2.3"} and version["dependencies"] == {"left": "^1.0.0"}
        assert version["dist"]["tarball"] == f"{proxy.origin}/npm/@scope/lib/-/lib-1.2.3.tgz"
        archive = await proxy.get(version["dist"]["tarball"].removeprefix(proxy.origin))
        assert (archive.status, archive.body) == (200, content)
        assert (await proxy.get("/npm/@scope/lib/-/lib-9.9.9.tgz")).status == 404
        assert (await proxy.get("/simple/lib/")).status == 403 and proxy.rows[-1].rule == "registry"


async def test_npm_denied_packages(registry: LocalRegistry) -> None:
    registry.add_npm("target", "1.0.0")
    async with proxy_of(npm(deny=["Target"]), upstreams_of(registry)) as proxy:
        for path in ("/npm/target", "/npm/TARGET", "/npm/target/-/target-1.0.0.tgz"):
            said = await proxy.get(path)
            text = f"{DENIED}: package target is not available to this task"
            assert (said.status, said.reason, json.loads(said.body)) == (403, text, {"error": text})
    assert registry.asked == []


async def test_npm_highest_versions_and_tags(registry: LocalRegistry) -> None:
    for version in ("1.0.0", "1.9.0", "1.10.0", "2.0.0-rc.1", "2.0.0"):
        registry.add_npm("lib", version)
    async with proxy_of(npm(max_versions={"lib": "1.9.5"}), upstreams_of(registry)) as proxy:
        said = await proxy.get("/npm/lib")
        document = json.loads(said.body)
        assert list(document["versions"]) == ["1.0.0", "1.9.0"] and document["dist-tags"] == {"latest": "1.9.0"}
        assert (
            proxy.rows[-1].rule == "version=3" and "denied by the task's network policy" in said.headers["npm-notice"]
        )
        later = await proxy.get("/npm/lib/-/lib-2.0.0.tgz")
        assert later.status == 403 and proxy.rows[-1].rule == "version"
    async with proxy_of(npm(max_versions={"lib": "0.1.0"}), upstreams_of(registry)) as proxy:
        said = await proxy.get("/npm/lib")
        assert said.status == 403 and said.reason == f"{DENIED}: no version of lib that the task may use"


async def test_npm_date_cut(registry: LocalRegistry) -> None:
    registry.add_npm("lib", "1.0.0", published="2024-04-01T00:00:00.000Z")
    registry.add_npm("lib", "1.1.0", published="2024-06-01T00:00:00.000Z")
    registry.add_npm("lib", "1.2.0")
    registry.add_npm("lib", "1.3.0", published="soon")
    async with proxy_of(npm(before=CUT), upstreams_of(registry)) as proxy:
        document = json.loads((await proxy.get("/npm/lib")).body)
        assert list(document["versions"]) == list(document["time"]) == ["1.0.0"]
        assert proxy.rows[-1].rule == "date=1 undated=2"
    assert registry.asked[0].headers["Accept"] == "application/json"  # only the full document has times


async def test_npm_digests(registry: LocalRegistry) -> None:
    registry.add_npm("lib", "1.0.0")
    registry.add_npm("lib", "1.1.0")
    registry.add_npm("lib", "1.2.0")
    registry.files["/npm/lib/-/lib-1.0.0.tgz"] = b"swapped"
    versions = registry.documents["lib"]["versions"]
    versions["1.1.0"]["dist"]["integrity"] = "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="  # type: ignore[index]
    async with proxy_of(npm(), upstreams_of(registry)) as proxy:
        assert list(json.loads((await proxy.get("/npm/lib")).body)["versions"]) == ["1.0.0", "1.2.0"]
        said = await proxy.get("/npm/lib/-/lib-1.0.0.tgz")
        assert said.status == 502 and "swapped" not in said.body.decode() and proxy.rows[-1].rule == "digest"
        assert (await proxy.get("/npm/lib/-/lib-1.1.0.tgz")).status == 403 and proxy.rows[-1].rule == "unverifiable"
    async with proxy_of(npm(sha256={"lib": ["a" * 64]}), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/npm/lib/-/lib-1.2.0.tgz")).status == 403 and proxy.rows[-1].rule == "pin"


@pytest.mark.parametrize("document", [b"{", b'{"versions": []}', b'{"versions": {"1.0.0": {"dist": 3}}}', b"\xff"])
async def test_an_npm_document_that_cannot_be_understood(registry: LocalRegistry, document: bytes) -> None:
    registry.files["/npm/lib"] = document
    async with proxy_of(npm(), upstreams_of(registry)) as proxy:
        said = await proxy.get("/npm/lib")
        assert said.status == 502 and "cannot be understood" in json.loads(said.body)["error"]


def add_module(registry: LocalRegistry, module: str, times: dict[str, str]) -> None:
    """`module` as a Go proxy names it (escaped)."""
    registry.files[f"/go/{module}/@v/list"] = "".join(f"{version}\n" for version in times).encode()
    for version, time in times.items():
        info = json.dumps({"Version": version, "Time": time}).encode()
        registry.files[f"/go/{module}/@v/{version}.info"] = registry.files[f"/go/{module}/@latest"] = info
        registry.files[f"/go/{module}/@v/{version}.mod"] = b"module x\n"
        registry.files[f"/go/{module}/@v/{version}.zip"] = b"zip of " + version.encode()


async def test_go_modules_go_through(registry: LocalRegistry) -> None:
    add_module(registry, "example.org/!lib", {"v1.0.0": "2024-01-01T00:00:00Z", "v1.2.0": "2024-06-01T00:00:00Z"})
    async with proxy_of(go(), upstreams_of(registry)) as proxy:
        base = "/go/example.org/!lib/@v"
        assert (await proxy.get(f"{base}/list")).body == b"v1.0.0\nv1.2.0\n"
        assert (await proxy.get(f"{base}/v1.0.0.mod")).body == b"module x\n"
        assert (await proxy.get(f"{base}/v1.0.0.zip")).body == b"zip of v1.0.0"
        latest = json.loads((await proxy.get("/go/example.org/!lib/@latest")).body)
        assert latest == {"Version": "v1.2.0", "Time": "2024-06-01T00:00:00Z"}
        assert (await proxy.get("/go/example.org/none/@v/list")).status == 404


async def test_go_denied_modules_and_versions(registry: LocalRegistry) -> None:
    times = {"v1.0.0": "2024-01-01T00:00:00Z", "v1.2.0": "2024-06-01T00:00:00Z"}
    add_module(registry, "example.org/lib", times)
    async with proxy_of(go(deny=["example.org/Lib"]), upstreams_of(registry)) as proxy:
        for module in ("lib", "!lib", "lib/v3", "lib/sub"):
            said = await proxy.get(f"/go/example.org/{module}/@v/list")
            assert said.status == 403 and said.reason.startswith(f"{DENIED}: module example.org/"), module
        assert (await proxy.get("/go/example.org/library/@v/list")).status == 404
        assert registry.paths() == ["/go/example.org/library/@v/list"]
    async with proxy_of(go(max_versions={"example.org/lib": "v1.1.0"}), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/go/example.org/lib/@v/list")).body == b"v1.0.0\n" and proxy.rows[
            -1
        ].rule == "version=1"
        for path in ("@v/v1.2.0.zip", "@v/v1.2.0.info", "@v/main.info", "@latest"):
            assert (await proxy.get(f"/go/example.org/lib/{path}")).status == 403, path
    async with proxy_of(go(before=CUT), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/go/example.org/lib/@v/v1.0.0.zip")).status == 200
        for path in ("@v/v1.2.0.zip", "@v/v1.2.0.mod", "@latest"):
            assert (await proxy.get(f"/go/example.org/lib/{path}")).status == 403 and proxy.rows[-1].rule == "date", (
                path
            )


async def test_go_answers_that_cannot_be_understood(registry: LocalRegistry) -> None:
    async def binary(request: web.Request) -> web.Response:
        return web.Response(body=b"\xff\xfe")

    registry.special["/go/example.org/lib/@v/list"] = registry.special["/go/example.org/lib/@latest"] = binary
    registry.files["/go/example.org/other/@latest"] = b"{}"
    async with proxy_of(go(), upstreams_of(registry)) as proxy:
        for path in ("lib/@v/list", "lib/@latest", "other/@latest"):
            assert (await proxy.get(f"/go/example.org/{path}")).status == 502, path


@pytest.mark.slow
@pytest.mark.toolchains
@pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed: apt install golang-go")
async def test_the_real_go(registry: LocalRegistry, tmp_path: Path) -> None:
    def publish(module: str, version: str, time: str, requires: str = "") -> None:
        mod = f"module {module}\n\ngo 1.18\n{requires}"
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(f"{module}@{version}/go.mod", mod)
            archive.writestr(f"{module}@{version}/a.go", f"package {module.rpartition('/')[2]}\n")
        base = f"/go/{module}/@v"
        registry.files[f"{base}/list"] = registry.files.get(f"{base}/list", b"") + f"{version}\n".encode()
        registry.files[f"{base}/{version}.info"] = json.dumps({"Version": version, "Time": time}).encode()
        registry.files[f"{base}/{version}.mod"] = mod.encode()
        registry.files[f"{base}/{version}.zip"] = packed.getvalue()

    publish("example.org/leaf", "v1.0.0", "2024-01-01T00:00:00Z")
    publish("example.org/leaf", "v1.1.0", "2024-01-01T00:00:00Z")
    publish("example.org/late", "v1.0.0", "2025-01-01T00:00:00Z")
    publish("example.org/target", "v1.0.0", "2024-01-01T00:00:00Z")
    publish("example.org/tree", "v1.0.0", "2024-01-01T00:00:00Z", "require example.org/leaf v1.0.0\n")
    policy = go(before=CUT, deny=["example.org/target"], max_versions={"example.org/leaf": "v1.0.5"})
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        gateway = RegistryGateway(policy, upstreams_of(registry), proxy.rows.append, port=proxy.port)
        own = {"HOME": str(tmp_path), "GOPATH": str(tmp_path / "go"), "GOFLAGS": "-modcacherw"}

        async def say(*words: str) -> str:
            process = await asyncio.create_subprocess_exec(
                "go", *words, cwd=tmp_path, env=os.environ | own | gateway.variables,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            async with asyncio.timeout(60):
                return (await process.communicate())[0].decode()

        await say("mod", "init", "example.org/m")
        assert "added example.org/tree v1.0.0" in await say("get", "example.org/tree")
        for module, why in {
            "example.org/target": "module example.org/target is not available to this task",
            "example.org/leaf@v1.1.0": "later than the highest version",
            "example.org/late": "not from before the date",
        }.items():
            assert why in await say("get", module)
        await say("get", "example.org/leaf")
        assert "example.org/leaf v1.0.0" in (tmp_path / "go.mod").read_text()
