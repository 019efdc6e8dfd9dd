"""What a sandbox can send, and how much: everything but a plain question is refused, bounded and recorded."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from sandbox.network.audit import AuditFile, AuditRecord, read
from sandbox.network.policy import Bounds, NpmRules, PythonRules, RegistryPolicy
from sandbox.network.registries import Registries
from sandbox.network.upstream import UpstreamError, Upstreams
from tests.sandbox.network.local_registry import JSON_TYPE, LocalRegistry
from tests.sandbox.network.running import Proxy, proxy_of, upstreams_of

DENIED = b"denied by the task's network policy: "
SECRETS = {
    "Authorization": "Bearer of-the-sandbox",
    "Proxy-Authorization": "Basic of-the-sandbox",
    "Cookie": "session=of-the-sandbox",
    "X-Api-Key": "of-the-sandbox",
    "Referer": "http://of-the-sandbox/",
    "User-Agent": "of-the-sandbox",
}


async def until(condition: object, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_only_get_and_head(registry: LocalRegistry, method: str) -> None:
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.get("/simple/lib/", method=method, data=b"upload" if method in ("POST", "PUT") else None)
        assert said.status == 405 and said.body.startswith(DENIED) and f"not {method}".encode() in said.body
        (row,) = proxy.rows
        assert (row.method, row.path, row.decision, row.rule) == (method, "/simple/lib/", "denied", "method")
    assert registry.asked == []


@pytest.mark.parametrize(
    ("request_bytes", "status", "rule"),
    [
        (b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n", b"405", "method"),
        (b"GET http://example.org/simple/lib/ HTTP/1.1\r\nHost: example.org\r\n\r\n", b"403", "request"),
        (b"GET //example.org/simple/lib/ HTTP/1.1\r\nHost: example.org\r\n\r\n", b"403", "request"),
        (b"GET /simple/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", b"403", "request"),
        (b"GET /simple/lib/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", b"400", "request"),
        (b"GET /simple/lib/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"400", "request"),
        (
            b"GET /simple/lib/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            b"404",
            "absent",
        ),
        (b"BREW /simple/lib/ HTTP/1.1\r\nHost: x\r\n\r\n", b"400", "request"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"400", "request"),
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400", "request"),
        (b"GET /simple/lib/ HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", b"400", "request"),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"400", "request"),
    ],
)
async def test_what_is_no_plain_question(
    registry: LocalRegistry, request_bytes: bytes, status: bytes, rule: str
) -> None:
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.raw(request_bytes)
        assert said.split(b" ")[1] == status, said[:200]
        await until(lambda: proxy.rows)
        (row,) = proxy.rows
        assert row.rule == rule and (row.decision == "denied" or rule == "absent")
    assert [asked.path for asked in registry.asked] == (["/simple/lib/"] if rule == "absent" else [])


async def test_connections_that_say_nothing_are_recorded_and_closed(registry: LocalRegistry) -> None:
    policy = RegistryPolicy(bounds=Bounds(silence_seconds=0.05))
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        assert await proxy.raw(b"") == b"" and await proxy.raw(b"GET /simple/lib/ HT") == b""
        await until(lambda: len(proxy.rows) == 2)
        assert {row.detail for row in proxy.rows} == {"a connection without a readable request"}


async def test_the_last_rows_are_written_before_the_end(registry: LocalRegistry) -> None:
    registry.special["/simple/lib/"] = registry.hang
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        _, silent = await asyncio.open_connection("127.0.0.1", proxy.port)
        _, waiting = await asyncio.open_connection("127.0.0.1", proxy.port)
        waiting.write(b"GET /simple/lib/ HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(20):
            await registry.hanging.wait()
        await until(lambda: proxy.connections() == 2)
        assert proxy.egress is not None and proxy.rows == []
        await proxy.egress.close()
        assert sorted(row.rule for row in proxy.rows) == ["client", "request"]
        await proxy.egress.close()  # twice is fine
    silent.close()
    waiting.close()


async def test_no_header_of_the_sandbox_leaves(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "1.0")
    registry.add_npm("lib", "1.0.0")
    policy = RegistryPolicy(npm=NpmRules())
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        for path in ("/simple/lib/", "/files/lib/lib-1.0-py3-none-any.whl", "/npm/lib", "/npm/lib/-/lib-1.0.0.tgz"):
            assert (await proxy.get(path, headers=SECRETS)).status == 200
    assert len(registry.asked) == 4
    for asked in registry.asked:
        assert set(asked.headers) == {"Host", "User-Agent", "Accept", "Accept-Encoding"}
        assert "of-the-sandbox" not in json.dumps(asked.headers)


async def test_the_registrys_credentials_stay_outside(registry: LocalRegistry) -> None:
    """Given to the registry, never to a file host, never back to the sandbox."""
    async with LocalRegistry() as files:
        registry.add_wheel("lib", "1.0", core_metadata=None)
        registry.projects["lib"][0]["url"] = f"{files.origin}/packages/lib-1.0-py3-none-any.whl"
        files.files = registry.files
        hosts = frozenset({f"127.0.0.1:{files.port}"})
        upstreams = upstreams_of(registry, authorization="Basic outer-secret", file_hosts=hosts)
        async with proxy_of(RegistryPolicy(), upstreams) as proxy:
            page = await proxy.get("/simple/lib/")
            file = await proxy.get("/files/lib/lib-1.0-py3-none-any.whl")
            assert (page.status, file.status) == (200, 200)
            assert b"outer-secret" not in page.body and str(files.port).encode() not in page.body
            assert "outer-secret" not in str(upstreams) + "".join(row.model_dump_json() for row in proxy.rows)
    assert registry.asked[0].headers["Authorization"] == "Basic outer-secret"
    assert "Authorization" not in files.asked[0].headers


async def test_request_bound(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "1.0")
    async with proxy_of(RegistryPolicy(bounds=Bounds(requests=3)), upstreams_of(registry)) as proxy:
        said = [await proxy.get("/simple/lib/") for _ in range(8)]
        assert [one.status for one in said] == [200] * 3 + [429] * 5
        assert said[3].body == DENIED + b"this sandbox may make 3 requests\n"
        rows = proxy.rows
    assert [row.rule for row in rows] == ["", "", "", "requests", "requests"]
    assert sum(row.count for row in rows) == 8 and rows[-1].count == 4


async def test_byte_bound(registry: LocalRegistry) -> None:
    for version in ("1.0", "1.1", "1.2"):
        registry.add("lib", f"lib-{version}.tar.gz", version.encode() * 1000)
    async with proxy_of(RegistryPolicy(bounds=Bounds(bytes=9000)), upstreams_of(registry)) as proxy:
        said = [await proxy.get(f"/files/lib/lib-{version}.tar.gz") for version in ("1.0", "1.1", "1.2")]
        assert [one.status for one in said] == [200, 200, 429] and b"9000 bytes" in said[2].body
        assert proxy.rows[-1].rule == "bytes" and said[1].body == b"1.1" * 1000
        pages = [await proxy.get("/simple/lib/") for _ in range(8)]  # remembered: nothing is fetched, but it is given
        assert pages[0].status == 200 and pages[-1].status == 429 and proxy.rows[-1].rule == "bytes"
        assert sum(row.sent for row in proxy.rows if row.decision == "allowed") <= 9000


async def test_the_number_of_connections_is_bounded(registry: LocalRegistry) -> None:
    """A sandbox cannot use up the descriptors of the host: what is too many waits in its own kernel queue."""
    registry.add_wheel("lib", "1.0")
    async with proxy_of(RegistryPolicy(bounds=Bounds(connections=2)), upstreams_of(registry)) as proxy:
        idle = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(6)]
        asking = asyncio.create_task(proxy.get("/simple/lib/"))
        await until(lambda: proxy.connections() == 2)
        most = 0
        for _, writer in idle:
            most = max(most, proxy.connections())
            writer.close()
            await writer.wait_closed()
        assert (await asking).status == 200 and most <= 2
        await until(lambda: len(proxy.rows) == 7)


async def test_a_client_that_does_not_read_is_left(registry: LocalRegistry) -> None:
    registry.add("lib", "lib-1.0.tar.gz", bytes(8 << 20))
    policy = RegistryPolicy(bounds=Bounds(request_seconds=3.0))
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", proxy.port))
            client.sendall(b"GET /files/lib/lib-1.0.tar.gz HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: proxy.rows)
            assert proxy.connections() == 1
            await until(lambda: proxy.connections() == 0)


async def test_a_client_that_goes_away_is_recorded(registry: LocalRegistry) -> None:
    registry.special["/simple/lib/"] = registry.hang
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /simple/lib/ HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(20):
            await registry.hanging.wait()
        writer.close()
        await until(lambda: proxy.rows)
        assert (proxy.rows[0].decision, proxy.rows[0].rule) == ("failed", "client")


async def test_nothing_is_answered_unrecorded(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "1.0")
    rows: list[AuditRecord] = []

    def full(record: AuditRecord) -> None:
        if len(rows) == 1:
            raise OSError(28, "No space left on device")
        rows.append(record)

    async with proxy_of(RegistryPolicy(), upstreams_of(registry), full) as proxy:
        assert (await proxy.get("/simple/lib/")).status == 200
        for _ in range(2):
            said = await proxy.get("/simple/lib/")
            assert said.status == 503 and said.body == DENIED + b"the audit log cannot be written\n"


async def test_a_fault_of_ours_is_recorded_too(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Registries, "answer", broken)
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.get("/simple/lib/")
        assert said.status == 500 and b"a bug" not in said.body
        assert (proxy.rows[0].decision, proxy.rows[0].rule) == ("failed", "internal")


async def test_the_audit_file(registry: LocalRegistry, tmp_path: Path) -> None:
    content = registry.add_wheel("lib", "1.0")
    path = tmp_path / "logs" / "audit.jsonl"
    policy = RegistryPolicy(python=PythonRules(deny=frozenset({"target"})))
    for _ in range(2):
        with AuditFile(path) as sink:
            async with proxy_of(policy, upstreams_of(registry), sink) as proxy:
                await proxy.get("/simple/lib/", headers={"Accept": JSON_TYPE})
                await proxy.get("/files/lib/lib-1.0-py3-none-any.whl")
                await proxy.get("/files/target/target-1.0-py3-none-any.whl")
    rows = list(read(path))
    assert len(rows) == 6 and path.stat().st_mode & 0o077 == 0
    page, file, denied = rows[:3]
    host = f"127.0.0.1:{registry.port}"
    assert {(row.sandbox, row.method) for row in rows} == {("box", "GET")}
    assert [row.host for row in rows[:3]] == [host, host, ""]
    assert (file.path, file.decision, file.status) == ("/files/lib/lib-1.0-py3-none-any.whl", "allowed", 200)
    assert file.fetched == file.sent == len(content) and page.fetched > 0 and page.sent > 0 and page.seconds > 0
    assert (denied.decision, denied.rule, denied.status, denied.fetched) == ("denied", "package", 403, 0)
    assert page.time <= file.time <= denied.time
    path.write_text(path.read_text() + '{"half": ')
    with pytest.raises(ValueError, match=r"audit\.jsonl, line 7"):
        list(read(path))


async def test_long_paths_are_cut_in_the_log(registry: LocalRegistry) -> None:
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        await proxy.get("/simple/" + "a" * 1500)
        assert len(proxy.rows[0].path) == 500


async def test_each_sandbox_has_its_own_bounds_and_rows(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "1.0")
    policy = RegistryPolicy(bounds=Bounds(requests=1))
    async with proxy_of(policy, upstreams_of(registry)) as one, proxy_of(policy, upstreams_of(registry)) as other:
        statuses: list[int] = []
        both: tuple[Proxy, Proxy] = (one, other)
        for proxy in both:
            statuses += [(await proxy.get("/simple/lib/")).status for _ in range(2)]
        assert statuses == [200, 429, 200, 429] and [len(proxy.rows) for proxy in both] == [2, 2]


async def test_a_policy_without_a_registry_is_refused() -> None:
    with pytest.raises(UpstreamError, match=r"the policy opens python packages.*OPENCOMPOSER_PYTHON_INDEX"):
        async with proxy_of(RegistryPolicy(), Upstreams()):
            raise AssertionError
