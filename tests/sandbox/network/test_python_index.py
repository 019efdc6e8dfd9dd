"""The filtered Python index: what it shows, what it hides, and that a file is proved before a byte of it is given."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.network.audit import AuditRecord
from sandbox.network.kept import KeptFiles
from sandbox.network.policy import Bounds, PythonRules, RegistryPolicy
from sandbox.network.upstream import Upstream, Upstreams
from tests.sandbox.network.local_registry import JSON_TYPE, LocalRegistry, tarball, wheel
from tests.sandbox.network.running import Proxy, proxy_of, upstreams_of

DENIED = "denied by the task's network policy"
ASK_JSON = {"Accept": JSON_TYPE}


def names(page: bytes) -> list[str]:
    return [entry["filename"] for entry in json.loads(page)["files"]]


async def shown(proxy: Proxy, name: str) -> list[str]:
    """File names of a package's page, without the notice."""
    said = await proxy.get(f"/simple/{name}/", headers=ASK_JSON)
    assert said.status == 200 and said.headers["Content-Type"] == JSON_TYPE
    return [filename for filename in names(said.body) if ".by.the.network.policy" not in filename]


def last(proxy: Proxy) -> AuditRecord:
    return proxy.rows[-1]


async def test_pages_and_files_go_through(registry: LocalRegistry) -> None:
    content = registry.add_wheel("some-lib", "1.0", requires_python=">=3.8", upload_time="2024-01-02T03:04:05Z")
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        page = await proxy.get("/simple/Some_Lib/", headers=ASK_JSON)
        (entry,) = json.loads(page.body)["files"]
        assert entry["hashes"] == {"sha256": hashlib.sha256(content).hexdigest()} and entry["size"] == len(content)
        assert entry["requires-python"] == ">=3.8" and entry["upload-time"] == "2024-01-02T03:04:05Z"
        file = await proxy.get(entry["url"])
        assert (file.status, file.body) == (200, content)
        metadata = await proxy.get(entry["url"] + ".metadata")
        assert hashlib.sha256(metadata.body).hexdigest() == entry["core-metadata"]["sha256"]
        head = await proxy.get(entry["url"], method="HEAD")
        assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", str(len(content)))
        missing = await proxy.get("/simple/absent/")
        assert missing.status == 404 and last(proxy).rule == "absent"
        assert (await proxy.get("/files/some-lib/other-1.0-py3-none-any.whl")).status == 404


async def test_the_page_as_html(registry: LocalRegistry) -> None:
    """For installers that ask for no JSON; an attribute's value cannot end it."""
    content = registry.add_wheel("lib", "1.0", requires_python='>=3.8,<4"><b>', yanked='a "reason" <i>')
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        page = await proxy.get("/simple/lib/", headers={"Accept": "text/html"})
    text = page.body.decode()
    assert page.headers["Content-Type"] == "text/html" and "<b>" not in text and "<i>" not in text
    assert 'data-requires-python="&gt;=3.8,&lt;4&quot;&gt;&lt;b&gt;"' in text and "data-yanked=" in text
    (href,) = re.findall(r'href="([^"]+)"', text)
    assert href == f"/files/lib/lib-1.0-py3-none-any.whl#sha256={hashlib.sha256(content).hexdigest()}"


async def test_an_index_that_speaks_html_only() -> None:
    async with LocalRegistry(html=True) as registry:
        content = registry.add_wheel("lib", "1.0")
        policy = RegistryPolicy(python=PythonRules(max_versions={"lib": "1.0"}))
        registry.add_wheel("lib", "2.0")
        async with proxy_of(policy, upstreams_of(registry)) as proxy:
            assert await shown(proxy, "lib") == ["lib-1.0-py3-none-any.whl"]
            assert (await proxy.get("/files/lib/lib-1.0-py3-none-any.whl")).body == content
        async with proxy_of(RegistryPolicy(before=datetime(2099, 1, 1, tzinfo=UTC)), upstreams_of(registry)) as proxy:
            assert await shown(proxy, "lib") == [] and last(proxy).rule == "undated=2"


@pytest.mark.parametrize("spelling", ["target-lib", "Target_Lib", "TARGET.LIB", "target--lib"])
async def test_the_target_is_denied_in_every_spelling(registry: LocalRegistry, spelling: str) -> None:
    registry.add_wheel("target-lib", "1.0")
    policy = RegistryPolicy(python=PythonRules(deny=frozenset({"Target_lib"})))
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        page = await proxy.get(f"/simple/{spelling}/", headers=ASK_JSON)
        assert names(page.body) == ["target_lib-0+denied.by.the.network.policy-py3-none-any.whl"]
        assert (last(proxy).decision, last(proxy).rule) == ("denied", "package")
        for filename in (names(page.body)[0], "target_lib-1.0-py3-none-any.whl"):
            file = await proxy.get(f"/files/{spelling}/{filename}")
            assert file.status == 403 and file.reason.startswith(f"{DENIED}: package target-lib")
            assert file.body.decode().strip() == file.reason
        assert registry.asked == []


async def test_a_renamed_copy_of_the_target_is_denied(registry: LocalRegistry) -> None:
    registry.add(
        "copy", "copy-1.0-py3-none-any.whl", wheel("copy", "1.0", {"target/__init__.py": "", "target/a.py": ""})
    )
    registry.add("copy", "copy-1.1.tar.gz", tarball({"copy-1.1/src/target/core.py": ""}))
    registry.add("copy", "copy-1.2.tar.gz", tarball({"copy-1.2/target.py": ""}))
    registry.add("copy", "copy-1.3-py3-none-any.whl", wheel("copy", "1.3", {"copy-1.3.data/purelib/target.py": ""}))
    registry.add(
        "copy", "copy-2.0-py3-none-any.whl", wheel("copy", "2.0", {"copy/_vendor/target.py": "", "mytarget.py": ""})
    )
    registry.add("copy", "copy-2.1-py3-none-any.whl", b"no archive at all")
    policy = RegistryPolicy(python=PythonRules(deny_modules=frozenset({"target"})))
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        for filename in await shown(proxy, "copy"):
            file = await proxy.get(f"/files/copy/{filename}")
            expected = {"copy-2.0-py3-none-any.whl": (200, ""), "copy-2.1-py3-none-any.whl": (502, "registry")}
            assert (file.status, last(proxy).rule) == expected.get(filename, (403, "module")), filename
        assert "holds the module target" in "".join(row.detail for row in proxy.rows)


async def test_highest_versions(registry: LocalRegistry) -> None:
    for version in ("1.0", "1.9.1", "1.9.1.post1", "1.10", "2.0rc1", "2.0+local"):
        registry.add_wheel("lib", version)
    registry.add("lib", "lib-1.11.tar.gz", b"source")
    policy = RegistryPolicy(python=PythonRules(max_versions={"Lib": "1.9.1"}))
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        assert await shown(proxy, "lib") == ["lib-1.0-py3-none-any.whl", "lib-1.9.1-py3-none-any.whl"]
        assert last(proxy).rule == "version=5" and last(proxy).decision == "allowed"
        page = json.loads((await proxy.get("/simple/lib/", headers=ASK_JSON)).body)
        assert page["files"][0]["filename"] == "lib-0+some.versions.denied.by.the.network.policy-py3-none-any.whl"
        assert page["files"][0]["yanked"].startswith(DENIED)
        file = await proxy.get("/files/lib/lib-1.10-py3-none-any.whl")
        assert file.status == 403 and "later than the highest version" in file.reason and last(proxy).rule == "version"
        assert "/packages/lib-1.10-py3-none-any.whl" not in registry.paths()


async def test_date_cut(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "1.0", upload_time="2024-04-30T23:59:59.999Z")
    registry.add_wheel("lib", "1.1", upload_time="2024-05-01T00:00:00Z")
    registry.add_wheel("lib", "1.2")
    cut = datetime(2024, 5, 1, tzinfo=UTC)
    async with proxy_of(RegistryPolicy(before=cut), upstreams_of(registry)) as proxy:
        assert await shown(proxy, "lib") == ["lib-1.0-py3-none-any.whl"] and last(proxy).rule == "date=1 undated=1"
        assert "after the date" in (await proxy.get("/files/lib/lib-1.1-py3-none-any.whl")).reason
        assert "no upload time" in (await proxy.get("/files/lib/lib-1.2-py3-none-any.whl")).reason
    async with proxy_of(RegistryPolicy(before=cut, undated="allow"), upstreams_of(registry)) as proxy:
        assert await shown(proxy, "lib") == ["lib-1.0-py3-none-any.whl", "lib-1.2-py3-none-any.whl"]


async def test_nothing_left_is_said(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "2.0")
    policy = RegistryPolicy(python=PythonRules(max_versions={"lib": "1"}))
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        (notice,) = json.loads((await proxy.get("/simple/lib/", headers=ASK_JSON)).body)["files"]
        assert "yanked" not in notice  # so that an installer tries it, and shows why it cannot have it
        file = await proxy.get(notice["url"])
        assert (file.status, file.reason) == (403, f"{DENIED}: no version of lib that the task may use")


async def test_pinned_digests(registry: LocalRegistry) -> None:
    content = registry.add_wheel("lib", "1.0")
    registry.add_wheel("lib", "1.1")
    registry.add_wheel("other", "1.0")
    pins = {"lib": frozenset({hashlib.sha256(content).hexdigest()})}
    async with proxy_of(RegistryPolicy(python=PythonRules(sha256=pins)), upstreams_of(registry)) as proxy:
        assert await shown(proxy, "lib") == ["lib-1.0-py3-none-any.whl"] and last(proxy).rule == "pin=1"
        assert await shown(proxy, "other") == ["other-1.0-py3-none-any.whl"]
    async with proxy_of(
        RegistryPolicy(python=PythonRules(sha256=pins, only_pinned=True)), upstreams_of(registry)
    ) as proxy:
        assert await shown(proxy, "lib") == ["lib-1.0-py3-none-any.whl"]
        assert await shown(proxy, "other") == [] and last(proxy).rule == "pin"


@pytest.mark.parametrize(
    ("filename", "hashes"),
    [
        ("lib-1.0-py3-none-any.whl", {}),
        ("lib-1.0-py3-none-any.whl", {"md5": "d41d8cd98f00b204e9800998ecf8427e"}),
        ("lib-1.0-py3-none-any.whl", {"sha256": "abc"}),
        ("other-1.0-py3-none-any.whl", {"sha256": "a" * 64}),
        ("lib-1.0.exe", {"sha256": "a" * 64}),
        ("lib-1.0.egg", {"sha256": "a" * 64}),
        ("lib.whl", {"sha256": "a" * 64}),
        ("lib-x.y-py3-none-any.whl", {"sha256": "a" * 64}),
    ],
)
async def test_what_cannot_be_proved_is_hidden(registry: LocalRegistry, filename: str, hashes: dict[str, str]) -> None:
    registry.add("lib", filename, b"content", hashes=hashes)
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        assert await shown(proxy, "lib") == [] and last(proxy).rule == "unverifiable=1"
        assert (await proxy.get(f"/files/lib/{filename}")).status == 403
    assert registry.paths() == ["/simple/lib/"]


async def test_a_changed_file_is_not_given(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "1.0")
    registry.files["/packages/lib-1.0-py3-none-any.whl"] = b"swapped on the way"
    registry.files["/packages/lib-1.0-py3-none-any.whl.metadata"] = b"swapped too"
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        for end in ("", ".metadata"):
            file = await proxy.get(f"/files/lib/lib-1.0-py3-none-any.whl{end}")
            assert file.status == 502 and b"swapped" not in file.body and "SHA-256" in file.reason
            assert (last(proxy).decision, last(proxy).rule) == ("denied", "digest")


@pytest.mark.parametrize(
    "page",
    [
        b"{",
        b"[]",
        b'{"files": [{}]}',
        b'{"files": [{"filename": "lib-1.0.tar.gz", "url": 3}]}',
        b'{"files": [{"filename": "lib-1.0.tar.gz", "url": "x", "upload-time": "yesterday"}]}',
        b'{"files": ' + b"[" * 100_000,
        b"\xff\xfe",
    ],
)
async def test_a_page_that_cannot_be_understood(registry: LocalRegistry, page: bytes) -> None:
    registry.files["/simple/lib/"] = page
    from aiohttp import web

    async def broken(request: web.Request) -> web.Response:
        return web.Response(body=page, content_type=JSON_TYPE)

    registry.special["/simple/lib/"] = broken
    async with proxy_of(RegistryPolicy(), upstreams_of(registry)) as proxy:
        said = await proxy.get("/simple/lib/")
        assert said.status == 502 and "cannot be understood" in said.reason
        assert (last(proxy).decision, last(proxy).rule) == ("failed", "registry")


async def test_several_indexes(registry: LocalRegistry) -> None:
    """Their files together, the first one's where both have it; a package that only one has is no failure."""
    async with LocalRegistry() as second:
        ours = registry.add_wheel("lib", "1.0")
        second.add("lib", "lib-1.0-py3-none-any.whl", wheel("lib", "1.0", {"other.py": ""}))
        second.add_wheel("lib", "2.0")
        second.add_wheel("only", "1.0")
        both = Upstreams(python=(Upstream(url=registry.index, private=True), Upstream(url=second.index, private=True)))
        async with proxy_of(RegistryPolicy(), both) as proxy:
            assert await shown(proxy, "lib") == ["lib-1.0-py3-none-any.whl", "lib-2.0-py3-none-any.whl"]
            assert (await proxy.get("/files/lib/lib-1.0-py3-none-any.whl")).body == ours
            assert await shown(proxy, "only") == ["only-1.0-py3-none-any.whl"]
            assert (await proxy.get("/simple/neither/")).status == 404


async def test_a_page_is_asked_for_once(registry: LocalRegistry) -> None:
    registry.add_wheel("lib", "1.0")
    policy = RegistryPolicy(bounds=Bounds(connections=4))
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        await asyncio.gather(*(shown(proxy, "lib") for _ in range(8)))
        before = registry.paths().count("/simple/lib/")
        await shown(proxy, "lib")
        assert registry.paths().count("/simple/lib/") == before <= 4


async def test_a_verified_file_is_kept_for_the_next_sandbox(registry: LocalRegistry, tmp_path: Path) -> None:
    """By its digest, and only until it is no longer what it was."""
    wheel_bytes, path = registry.add_wheel("lib", "1.0"), "/files/lib/lib-1.0-py3-none-any.whl"
    upstreams = upstreams_of(registry).model_copy(update={"kept_files": tmp_path})

    async def asked() -> int:
        before = len([p for p in registry.paths() if p.endswith(".whl")])
        async with proxy_of(RegistryPolicy(), upstreams) as proxy:
            assert (await proxy.get(path)).body == wheel_bytes
        return len([p for p in registry.paths() if p.endswith(".whl")]) - before

    assert [await asked(), await asked()] == [1, 0]
    (kept,) = tmp_path.glob("*/*")
    kept.write_bytes(b"something else")
    assert [await asked(), await asked()] == [1, 0]
    async with proxy_of(RegistryPolicy(python=PythonRules(max_versions={"lib": "0.9"})), upstreams) as proxy:
        assert (await proxy.get(path)).status == 403  # what a policy does not allow is not given out because it is here


def test_files_that_were_not_used_for_the_longest_time_go_first(tmp_path: Path) -> None:
    kept = KeptFiles(tmp_path, max_bytes=25)
    for number, digest in enumerate(("a" * 64, "b" * 64)):
        kept.put(digest, io.BytesIO(b"0123456789"), 10)
        os.utime(tmp_path / digest[:2] / digest, (number, number))
    kept.put("c" * 64, io.BytesIO(b"0123456789"), 10)
    assert [kept.has(letter * 64) for letter in "abc"] == [False, True, True]
    kept.put("d" * 64, io.BytesIO(b"x" * 30), 30)
    assert not kept.has("d" * 64)
