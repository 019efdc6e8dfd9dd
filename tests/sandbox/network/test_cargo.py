"""The filtered Cargo registry: its sparse index and its files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from sandbox.network import upstream
from sandbox.network.gateway import RegistryGateway
from sandbox.network.names import cargo_path
from sandbox.network.paths import CargoConfig, CargoFile, CargoIndex, parse
from sandbox.network.policy import Bounds, CargoRules, Denied, RegistryPolicy
from sandbox.network.upstream import UpstreamError, Upstreams, cargo_index
from tests.sandbox.network.local_registry import LocalRegistry
from tests.sandbox.network.running import proxy_of, upstreams_of

DENIED = "denied by the task's network policy"
CUT = datetime(2024, 5, 1, tzinfo=UTC)
EARLY, LATE = "2024-04-01T00:00:00Z", "2024-06-01T00:00:00Z"


def cargo(before: datetime | None = None, bounds: Bounds = Bounds(), **rules: object) -> RegistryPolicy:
    return RegistryPolicy(python=None, cargo=CargoRules.model_validate(rules), before=before, bounds=bounds)


def versions(body: bytes) -> list[str]:
    return [json.loads(line)["vers"] for line in body.splitlines()]


@pytest.mark.parametrize("name", ["a", "ab", "abc", "abcd", "Mixed_Case-name"])
async def test_index_and_files_go_through(registry: LocalRegistry, name: str) -> None:
    content = registry.add_crate(name, "1.2.3", features={"x": []}, links="z", rust_version="1.60")
    async with proxy_of(cargo(), upstreams_of(registry)) as proxy:
        config = json.loads((await proxy.get("/cargo/config.json")).body)
        assert config == {"dl": f"{proxy.origin}/cargo/crates"}
        said = await proxy.get(f"/cargo/{cargo_path(name.lower())}")
        assert said.body == registry.files[f"/cargo/{cargo_path(name.lower())}"]
        file = await proxy.get(f"/cargo/crates/{name}/1.2.3/download")
        assert (file.status, file.body) == (200, content)
        assert (await proxy.get(f"/cargo/crates/{name}/9.9.9/download")).status == 404
        assert (await proxy.get("/simple/lib/")).status == 403 and proxy.rows[-1].rule == "registry"


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("{origin}/f/{crate}/{crate}-{version}.crate", "/f/Tree/Tree-1.0.0.crate"),
        ("{origin}/f/{prefix}/{lowerprefix}/{sha256-checksum}", "/f/Tr/ee/tr/ee/{digest}"),
    ],
)
async def test_where_a_registry_keeps_its_files(registry: LocalRegistry, template: str, path: str) -> None:
    content = registry.add_crate("Tree", "1.0.0")
    digest = json.loads(registry.files["/cargo/tr/ee/tree"])["cksum"]
    registry.files["/cargo/config.json"] = json.dumps({"dl": template.replace("{origin}", registry.origin)}).encode()
    registry.files[path.replace("{digest}", digest)] = content
    async with proxy_of(cargo(), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/cargo/crates/Tree/1.0.0/download")).body == content


async def test_denied_crates(registry: LocalRegistry) -> None:
    for name in ("my-target", "my_target"):
        registry.add_crate(name, "1.0.0")
    async with proxy_of(cargo(deny=["My_Target"]), upstreams_of(registry)) as proxy:
        for name in ("my-target", "my_target"):
            for path in (f"/cargo/my/{name[2:4]}/{name}", f"/cargo/crates/{name}/1.0.0/download"):
                said = await proxy.get(path)
                assert (said.status, said.reason) == (403, f"{DENIED}: package my-target is not available to this task")
                assert proxy.rows[-1].rule == "package"
    assert registry.asked == []


async def test_highest_versions(registry: LocalRegistry) -> None:
    for version in ("1.0.0", "1.9.0", "1.10.0", "2.0.0-rc.1", "2.0.0"):
        registry.add_crate("lib", version)
    async with proxy_of(cargo(max_versions={"LIB": "1.9.5"}), upstreams_of(registry)) as proxy:
        assert versions((await proxy.get("/cargo/3/l/lib")).body) == ["1.0.0", "1.9.0"]
        assert proxy.rows[-1].rule == "version=3"
        said = await proxy.get("/cargo/crates/lib/2.0.0/download")
        assert said.status == 403 and "not among the versions" in said.reason and proxy.rows[-1].rule == "version"
    async with proxy_of(cargo(max_versions={"lib": "0.1.0"}), upstreams_of(registry)) as proxy:
        said = await proxy.get("/cargo/3/l/lib")
        assert said.status == 403 and said.reason == f"{DENIED}: no version of lib that the task may use"
    assert not [path for path in registry.paths() if "download" in path]


async def test_date_cut_where_the_index_gives_dates(registry: LocalRegistry) -> None:
    registry.add_crate("lib", "1.0.0", pubtime=EARLY)
    registry.add_crate("lib", "1.1.0", pubtime=LATE)
    registry.add_crate("lib", "1.2.0")
    async with proxy_of(cargo(CUT), upstreams_of(registry)) as proxy:
        assert versions((await proxy.get("/cargo/3/l/lib")).body) == ["1.0.0"]
        assert proxy.rows[-1].rule == "date=1 undated=1"
        assert (await proxy.get("/cargo/crates/lib/1.1.0/download")).status == 403 and proxy.rows[-1].rule == "date"
    async with proxy_of(cargo(CUT).model_copy(update={"undated": "allow"}), upstreams_of(registry)) as proxy:
        assert versions((await proxy.get("/cargo/3/l/lib")).body) == ["1.0.0", "1.2.0"]


async def test_digests_and_pins(registry: LocalRegistry) -> None:
    registry.add_crate("lib", "1.0.0")
    registry.add_crate("lib", "1.1.0")
    pin = json.loads(registry.files["/cargo/3/l/lib"].splitlines()[0])["cksum"]
    async with proxy_of(cargo(sha256={"lib": [pin]}, only_pinned=True), upstreams_of(registry)) as proxy:
        assert versions((await proxy.get("/cargo/3/l/lib")).body) == ["1.0.0"] and proxy.rows[-1].rule == "pin=1"
        assert (await proxy.get("/cargo/crates/lib/1.1.0/download")).status == 403 and proxy.rows[-1].rule == "pin"
        assert (await proxy.get("/cargo/ot/he/other")).status == 403 and proxy.rows[-1].rule == "pin"
        registry.files["/cargo-files/lib/1.0.0/download"] += b"more"
        said = await proxy.get("/cargo/crates/lib/1.0.0/download")
        assert said.status == 502 and "does not have the SHA-256 digest" in said.reason
        assert proxy.rows[-1].rule == "digest" and b"more" not in said.body


async def test_lines_that_cannot_be_understood_are_hidden(registry: LocalRegistry) -> None:
    registry.add_crate("lib", "1.0.0")
    registry.add_crate("lib", "not-a-version")
    registry.files["/cargo/3/l/lib"] += registry.files["/cargo/3/l/lib"].splitlines()[0].replace(b'"lib"', b'"other"')
    registry.files["/cargo/3/l/lib"] += b"\n"
    registry.add_crate("lib", "1.2.0", cksum="short")
    registry.files["/cargo/3/l/lib"] += b"{}\nno json\n" + b"[" * 100_000 + b"\n"
    async with proxy_of(cargo(), upstreams_of(registry)) as proxy:
        assert versions((await proxy.get("/cargo/3/l/lib")).body) == ["1.0.0"]
        assert proxy.rows[-1].rule == "unverifiable=6"


async def test_answers_that_cannot_be_understood(registry: LocalRegistry) -> None:
    registry.add_crate("lib", "1.0.0")
    registry.files["/cargo/ot/he/other"] = b"\xff\xfe"
    registry.files["/cargo/config.json"] = b"[]"
    async with proxy_of(cargo(), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/cargo/ot/he/other")).status == 502
        assert (await proxy.get("/cargo/crates/lib/1.0.0/download")).status == 502
        registry.files["/cargo/config.json"] = json.dumps({"dl": "http://example.org/x"}).encode()
        assert (await proxy.get("/cargo/crates/lib/1.0.0/download")).status == 502 and proxy.rows[-1].rule == "host"


async def test_bounds(registry: LocalRegistry) -> None:
    registry.add_crate("lib", "1.0.0")
    async with proxy_of(cargo(bounds=Bounds(file_bytes=10)), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/cargo/crates/lib/1.0.0/download")).status == 403 and proxy.rows[-1].rule == "size"
    async with proxy_of(cargo(bounds=Bounds(page_bytes=10)), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/cargo/3/l/lib")).status == 403 and proxy.rows[-1].rule == "size"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/cargo/config.json", CargoConfig()),
        ("/cargo/1/a", CargoIndex("a")),
        ("/cargo/se/rd/serde_json", CargoIndex("serde_json")),
        ("/cargo/cr/at/crates", CargoIndex("crates")),
        ("/cargo/crates/serde/1.0.0+b/download", CargoFile("serde", "1.0.0+b")),
    ],
)
def test_paths(path: str, target: object) -> None:
    assert parse(path) == target


@pytest.mark.parametrize(
    "path",
    ["/cargo/", "/cargo/serde", "/cargo/se/xx/serde", "/cargo/3/l/lib/x", "/cargo/1/ab", "/cargo/crates/a/1/upload",
     "/cargo/crates/../1/download", "/cargo/api/v1/crates", "/cargo/a-/b./a-b.", "/cargo/crates/a b/1.0.0/download"],
)  # fmt: skip
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(Denied):
        parse(path)


def test_rules_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="max_versions: lib = 'new'"):
        CargoRules(max_versions={"lib": "new"})
    with pytest.raises(ValueError, match="deny: 'a/b' is not the name of a crate"):
        CargoRules(deny=frozenset({"a/b"}))


def test_the_hosts_own_index_is_found(tmp_path: Path) -> None:
    own = {"CARGO_HOME": str(tmp_path)}
    assert cargo_index(own) is None
    file = tmp_path / "config.toml"
    file.write_text('[source.crates-io]\nreplace-with="m"\n[source.m]\nregistry="sparse+http://127.0.0.1:9/i"\n')
    assert cargo_index(own) == "sparse+http://127.0.0.1:9/i"
    file.write_text('[source.crates-io]\nreplace-with="m"\n[source.m]\nreplace-with="crates-io"\n')
    assert cargo_index(own) is None
    for wrong in ("[source", "source = 5", "source.crates-io = 5"):
        file.write_text(wrong)
        with pytest.raises(UpstreamError, match=r"config\.toml cannot be read .*OPENCOMPOSER_CARGO_INDEX"):
            cargo_index(own)


@pytest.mark.parametrize(
    ("index", "url"),
    [("sparse+http://127.0.0.1:9/i", "http://127.0.0.1:9/i/"), ("ssh://git@127.0.0.1/i", None)],
)
def test_a_sparse_index_is_served_and_no_other(index: str, url: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "command_output", lambda *_: "")  # no other tool is asked
    found = upstream.discover({"OPENCOMPOSER_CARGO_INDEX": index})
    assert (found.cargo.url if found.cargo else None) == url
    assert [words for words in found.skipped if "only sparse indexes" in words] == (
        [] if url else ["Cargo index ssh://***@127.0.0.1/i: only sparse indexes are served"]
    )


def test_a_policy_without_a_known_registry_is_refused() -> None:
    with pytest.raises(UpstreamError, match="OPENCOMPOSER_CARGO_INDEX"):
        RegistryGateway(cargo(), Upstreams(), lambda _: None)


async def test_the_registry_may_say_nothing(registry: LocalRegistry) -> None:
    async def broken(request: web.Request) -> web.Response:
        return web.Response(status=500)

    registry.special["/cargo/3/l/lib"] = broken
    async with proxy_of(cargo(), upstreams_of(registry)) as proxy:
        assert (await proxy.get("/cargo/3/l/lib")).status == 502
        assert (await proxy.get("/cargo/no/ne/none")).status == 404


@pytest.mark.slow
@pytest.mark.toolchains
@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed: apt install cargo")
async def test_the_real_cargo(registry: LocalRegistry, tmp_path: Path) -> None:
    dependency = {"features": [], "optional": False, "default_features": True, "target": None, "kind": "normal"}
    registry.add_crate("leaf", "1.0.0", pubtime=EARLY)
    registry.add_crate("leaf", "1.1.0", pubtime=EARLY)
    registry.add_crate("tree", "1.0.0", pubtime=EARLY, deps=[{"name": "leaf", "req": "^1.0", **dependency}])
    registry.add_crate("late", "1.0.0", pubtime=LATE)
    registry.add_crate("target", "1.0.0", pubtime=EARLY)
    policy = cargo(CUT, deny=["target"], max_versions={"leaf": "1.0.5"})
    async with proxy_of(policy, upstreams_of(registry)) as proxy:
        gateway = RegistryGateway(policy, upstreams_of(registry), proxy.rows.append, port=proxy.port)
        for path, text in gateway.files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        # cargo before 1.68 speaks the protocol, but only when it is told to
        early = {"RUSTC_BOOTSTRAP": "1", "CARGO_UNSTABLE_SPARSE_REGISTRY": "true"}
        chosen = {"RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))}
        own = {"HOME": str(tmp_path), "CARGO_HOME": str(tmp_path / ".cargo"), **chosen, **early}

        async def build(folder: str, crate: str) -> str:
            (tmp_path / folder / "src").mkdir(parents=True)
            (tmp_path / folder / "src/main.rs").write_text('fn main() { println!("{}", tree::VERSION); }\n')
            manifest = f'[package]\nname = "m"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n{crate} = "1"\n'
            (tmp_path / folder / "Cargo.toml").write_text(manifest)
            process = await asyncio.create_subprocess_exec(
                "cargo", "run", cwd=tmp_path / folder, env=os.environ | own | gateway.variables,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            async with asyncio.timeout(150):
                return (await process.communicate())[0].decode()

        said = await build("one", "tree")
        assert said.endswith("1.0.0\n"), said
        lock = (tmp_path / "one/Cargo.lock").read_text()
        assert 'name = "leaf"\nversion = "1.0.0"' in lock and "127.0.0.1" not in lock
        for folder, crate, rule in (("two", "target", "package"), ("three", "late", "date")):
            assert "error" in await build(folder, crate)
            assert rule in {row.rule for row in proxy.rows if f"/{crate}" in row.path}
