"""Towards the registries: which hosts and addresses are allowed, and what a bad registry can do to us."""

from __future__ import annotations

import asyncio
import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr, ValidationError

from sandbox.network import upstream
from sandbox.network.fetch import Fetcher, Meter, check_address
from sandbox.network.policy import Bounds, Denied, RegistryPolicy
from sandbox.network.upstream import SETTINGS, Upstream, UpstreamError, Upstreams, discover
from tests.sandbox.network.local_registry import LocalRegistry
from tests.sandbox.network.running import proxy_of, upstreams_of

FILE = "/files/lib/lib-1.0-py3-none-any.whl"
PACKAGE = "/packages/lib-1.0-py3-none-any.whl"


def redirecting(to: str, status: int = 302) -> Any:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": to})

    return answer


def answering(*chunks: bytes, **headers: str) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={key.replace("_", "-"): value for key, value in headers.items()})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        await response.write_eof()
        return response

    return answer


def resolving(monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[str]]) -> list[str]:
    """Make the event loop's resolver answer these; the hosts that were looked up, in order."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **kwargs: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers[host]]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_within_the_registry_are_followed(registry: LocalRegistry, status: int) -> None:
    content = registry.add_wheel("lib", "1.0")
    registry.files["/mirror/lib.whl"] = content
    registry.special[PACKAGE] = redirecting("/mirror/lib.whl", status)
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        assert (await proxy.get(FILE)).body == content
        assert proxy.rows[-1].host == " ".join([f"127.0.0.1:{registry.port}"] * 3)  # page, file, redirected


@pytest.mark.parametrize(
    "to",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://localhost:1/",
        "http://[::1]:1/",
        "https://example.org/lib.whl",
        "//example.org/lib.whl",
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "http://user:pass@127.0.0.1/x",
        "http://127.0.0.1:1/",
        "http://[bad/",
        "gopher:x",
    ],
)
async def test_redirects_elsewhere_are_refused(registry: LocalRegistry, to: str) -> None:
    registry.add_wheel("lib", "1.0")
    registry.special[PACKAGE] = redirecting(to)
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.get(FILE)
        assert said.status == 502 and proxy.rows[-1].rule == "host", said
        assert registry.paths() == ["/simple/lib/", PACKAGE]


async def test_a_redirect_takes_no_credentials_along(registry: LocalRegistry) -> None:
    async with LocalRegistry() as other:
        other.files["/moved"] = registry.add_wheel("lib", "1.0")
        registry.special[PACKAGE] = redirecting(f"{other.origin}/moved")
        hosts = frozenset({f"127.0.0.1:{other.port}"})
        async with proxy_of(
            RegistryPolicy(), upstreams_of(registry, file_hosts=hosts, authorization="Basic x")
        ) as proxy:
            assert (await proxy.get(FILE)).status == 200
        assert "Authorization" not in other.asked[0].headers
        assert registry.asked[-1].headers["Authorization"] == "Basic x"


async def test_redirects_without_end(registry: LocalRegistry) -> None:
    registry.special["/simple/lib/"] = redirecting("/simple/lib/")
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.get("/simple/lib/")
        assert said.status == 502 and "redirected more than 5 times" in said.reason and len(registry.asked) == 6


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://127.0.0.1:1/lib-1.0-py3-none-any.whl", "host"),  # plain HTTP, and not the registry's own host
        ("https://127.0.0.1:1/lib-1.0-py3-none-any.whl", "address"),
        ("https://169.254.169.254/lib-1.0-py3-none-any.whl", "address"),
        ("https://[fe80::1]/lib-1.0-py3-none-any.whl", "address"),
        ("https://0.0.0.0/lib-1.0-py3-none-any.whl", "address"),
        ("https://10.0.0.1/lib-1.0-py3-none-any.whl", "address"),
        ("https://[::ffff:10.0.0.1]/lib-1.0-py3-none-any.whl", "address"),
        ("file:///etc/passwd", "host"),
        ("javascript:alert(1)", "host"),
    ],
)
async def test_files_that_a_page_names_elsewhere(registry: LocalRegistry, url: str, rule: str) -> None:
    registry.add("lib", "lib-1.0-py3-none-any.whl", b"x", url=url)
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.get(FILE)
        assert said.status == 502 and proxy.rows[-1].rule == rule, said


async def test_other_hosts_only_when_listed(registry: LocalRegistry) -> None:
    registry.add("lib", "lib-1.0-py3-none-any.whl", b"x", url="https://files.test/lib.whl")
    async with proxy_of(RegistryPolicy(), upstreams_of(registry, file_hosts=frozenset({"other.test"}))) as proxy:
        said = await proxy.get(FILE)
        assert said.status == 502 and proxy.rows[-1].rule == "host" and "https://files.test" in said.reason


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "100.64.0.1",
        "255.255.255.255",
    ],
)
async def test_a_name_that_leads_to_an_inner_address(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """DNS rebinding: a public name, a private address, also when only one of several is private."""
    asked = resolving(monkeypatch, {"index.test": [address], "files.test": ["8.8.8.8", address]})
    public = Upstream(url="https://index.test/simple/")
    async with proxy_of(RegistryPolicy(), Upstreams(python=(public,))) as proxy:
        said = await proxy.get("/simple/lib/")
        assert said.status == 502 and proxy.rows[-1].rule == "address" and asked == ["index.test"]
    async with Fetcher(Upstreams(python=(public,)), Bounds()) as fetcher:
        chunks = fetcher.file(public, "https://files.test/x.whl", Meter(Bounds()), listed=True)
        with pytest.raises(Denied) as refused:
            await anext(chunks)
        assert refused.value.rule == "address" and asked == ["index.test", "files.test"]


async def test_a_private_registry_may_name_private_hosts(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name and over HTTPS, on its pages; never the metadata service. (Nobody listens there: it is tried.)"""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        resolving(monkeypatch, {"files.test": ["127.0.0.1"], "bad.test": ["169.254.169.254"]})
        for host, rule in (("files.test", "registry"), ("bad.test", "address")):
            registry.projects.clear()
            registry.add("lib", "lib-1.0-py3-none-any.whl", b"x", url=f"https://{host}:{port}/lib.whl")
            async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
                assert (await proxy.get(FILE)).status == 502 and proxy.rows[-1].rule == rule


async def test_the_checked_address_is_the_one_connected_to(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection looks the name up once; nothing is looked up between the check and the connection."""
    registry.add_wheel("lib", "1.0")
    asked = resolving(monkeypatch, {"index.test": ["127.0.0.1"]})
    named = Upstreams(python=(Upstream(url=f"http://index.test:{registry.port}/simple/", private=True),))
    async with proxy_of(RegistryPolicy(), named) as proxy:
        assert (await proxy.get("/simple/lib/")).status == 200
    assert asked == ["index.test"] and registry.asked[0].headers["Host"] == f"index.test:{registry.port}"


def test_addresses_that_no_registry_may_have() -> None:
    for address in (
        "169.254.1.1",
        "fe80::1",
        "fe80::1%eth0",
        "ff02::1",
        "224.0.0.251",
        "0.0.0.0",
        "::",
        "::ffff:169.254.169.254",
    ):
        with pytest.raises(Denied):
            check_address(address, private=True)
    for address in ("127.0.0.1", "10.0.0.1", "fd00::1", "::1"):
        check_address(address, private=True)
        with pytest.raises(Denied):
            check_address(address, private=False)
    check_address("8.8.8.8", private=False)
    check_address("2001:4860:4860::8888", private=False)


async def test_a_registry_that_does_not_answer(registry: LocalRegistry) -> None:
    registry.special["/simple/lib/"] = registry.hang
    for bounds in (Bounds(silence_seconds=0.2), Bounds(request_seconds=0.2)):
        async with proxy_of(RegistryPolicy(bounds=bounds), upstreams_of(registry)) as proxy:
            said = await proxy.get("/simple/lib/")
            assert said.status in (502, 504) and proxy.rows[-1].decision == "failed"
            assert "in time" in said.reason or "not done within 0.2 s" in said.reason


async def test_a_registry_that_drips(registry: LocalRegistry) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    registry.special["/simple/lib/"] = drip
    async with proxy_of(RegistryPolicy(bounds=Bounds(request_seconds=0.5)), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/simple/lib/")).status in (502, 504)


async def test_a_registry_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/simple/"
        async with proxy_of(RegistryPolicy(), Upstreams(python=(Upstream.of(url),))) as proxy:
            said = await proxy.get("/simple/lib/")
            assert said.status == 502 and "could not be read" in said.reason


async def test_a_registry_that_breaks_off(registry: LocalRegistry) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    registry.add_wheel("lib", "1.0")
    registry.special[PACKAGE] = half
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.get(FILE)
        assert said.status == 502 and b"half" not in said.body and proxy.rows[-1].rule == "registry"


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503, 206, 304])
async def test_a_registry_that_refuses(registry: LocalRegistry, status: int) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status)

    registry.special["/simple/lib/"] = refuse
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.get("/simple/lib/")
        assert said.status == 502 and f"status {status}" in said.reason


async def test_oversized_answers(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "1.0", core_metadata=None)
    registry.special[PACKAGE] = answering(*[bytes(1000)] * 20)
    registry.special["/simple/long/"] = answering(*[b" " * 1000] * 20, Content_Type="text/html")
    bounds = Bounds(file_bytes=10_000, page_bytes=10_000)
    async with proxy_of(RegistryPolicy(bounds=bounds), upstreams_of(registry)) as proxy:
        for path in (FILE, "/simple/long/"):
            said = await proxy.get(path)
            assert said.status == 403 and "exceeds 10000 bytes" in said.reason and proxy.rows[-1].rule == "size"
            assert len(said.body) < 200


async def test_a_page_that_unpacks_without_end(registry: LocalRegistry) -> None:
    import gzip

    packed = gzip.compress(b" " * (20 << 20))
    registry.special["/simple/lib/"] = answering(packed, Content_Encoding="gzip", Content_Type="text/html")
    registry.add_wheel("file", "1.0", core_metadata=None)
    registry.special["/packages/file-1.0-py3-none-any.whl"] = answering(packed, Content_Encoding="gzip")
    async with proxy_of(RegistryPolicy(bounds=Bounds(page_bytes=1 << 20)), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/simple/lib/")).status == 403 and proxy.rows[-1].rule == "size"
        assert proxy.rows[-1].fetched < 2 << 20
        said = await proxy.get("/files/file/file-1.0-py3-none-any.whl")
        assert said.status == 502 and "transfer encoding" in said.reason


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x.test/",
        "x.test",
        "https://",
        "https://a:b@x.test/",
        "https://x.test/?q=1",
        "file:///srv",
        "http://x:99999/",
    ],
)
def test_addresses_that_are_no_registry(url: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Upstream(url=url)
    assert "a:b" not in str(refused.value).replace("input_value", "").split("[type")[0]


def test_file_hosts_are_hosts() -> None:
    Upstream(url="https://x.test/", file_hosts=frozenset({"files.test", "files.test:8443", "[fd00::1]:80"}))
    for host in ("https://files.test", "files.test/", "Files.test", "a b", "files.test:port", ""):
        with pytest.raises(ValidationError, match="file_hosts"):
            Upstream(url="https://x.test/", file_hosts=frozenset({host}))


def test_credentials_in_an_address_become_a_secret() -> None:
    made = Upstream.of("https://me:p%40ss@127.0.0.1:8443/simple")
    assert made.url == "https://127.0.0.1:8443/simple/" and made.private and made.authorization is not None
    assert made.authorization.get_secret_value() == "Basic bWU6cEBzcw=="
    assert "bWU6" not in repr(made) + str(made) + made.model_dump_json()
    assert Upstream.of("http://[::1]:9/x").url == "http://[::1]:9/x/"
    assert Upstream.of("http://127.0.0.1/x", SecretStr("Bearer t")).authorization == SecretStr("Bearer t")


def test_settings_name_the_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    found = discover(
        {
            SETTINGS["python"]: "http://127.0.0.1:1/simple http://127.0.0.1:2/simple file:///srv/simple",
            SETTINGS["npm"]: "http://127.0.0.1:3",
            SETTINGS["go"]: "http://127.0.0.1:4/go",
            SETTINGS["authorization"]: "Bearer t",
        }
    )
    assert [one.url for one in found.python] == ["http://127.0.0.1:1/simple/", "http://127.0.0.1:2/simple/"]
    assert found.npm is not None and found.npm.url == "http://127.0.0.1:3/" and found.npm.authorization is not None
    assert found.go is not None and found.go.url == "http://127.0.0.1:4/go/"
    assert found.skipped == ("Python index file:///srv/simple: only http(s) is served",)


def test_otherwise_the_hosts_own_tools_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = http://127.0.0.1:1/global\ncert = /certificates\n"
                      "[install]\nextra-index-url = http://u:p@127.0.0.1:2/a\n  file:///b\n")  # fmt: skip
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:3/npm/")
    for name in (*SETTINGS.values(), "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    found = discover()
    assert [one.url for one in found.python] == ["http://127.0.0.1:1/global/", "http://127.0.0.1:2/a/"]
    assert found.python[1].authorization is not None and str(found.ca_file) == "/certificates"
    assert found.skipped == ("Python index file:///b: only http(s) is served",)
    assert found.npm is None or found.npm.url == "http://127.0.0.1:3/npm/"
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/env")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    settings = upstream.pip_settings()
    assert settings["index-url"] == "http://127.0.0.1:9/env" and upstream.pip_indexes(settings) == []


def test_pips_own_index_is_read_from_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (upstream.pip_default() or "").startswith("https://")
    with pytest.raises(UpstreamError, match=r"failed: .*OPENCOMPOSER_PYTHON_INDEX"):
        upstream.command_output("sh", "-c", "echo broken >&2; exit 3")


async def test_dates_of_the_audit_are_in_utc(registry: LocalRegistry) -> None:
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        await proxy.get("/simple/lib/")
        stamp = json.loads(proxy.rows[0].model_dump_json())["time"]
    assert datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone(UTC) <= datetime.now(UTC)
