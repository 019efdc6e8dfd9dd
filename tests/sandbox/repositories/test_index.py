"""Source distributions from an index: which release is taken, what is refused, and that nothing else is believed."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.errors import PackageError, PackageUnavailable
from sandbox.network import Upstream, Upstreams
from sandbox.repositories import index, pins
from sandbox.repositories.sdist import from_archive
from tests.sandbox.network.local_registry import LocalRegistry, tarball


@pytest.fixture
async def registry() -> AsyncIterator[LocalRegistry]:
    async with LocalRegistry() as made:
        yield made


def upstreams(registry: LocalRegistry) -> Upstreams:
    return Upstreams(python=(Upstream.of(registry.index),))


def release(registry: LocalRegistry, version: str, **fields: object) -> str:
    """Publish a source distribution of `shop`; its SHA-256."""
    content = tarball({f"shop-{version}/shop.py": f"VERSION = {version!r}\n", f"shop-{version}/LICENSE": "MIT\n"})
    registry.add("shop", f"shop-{version}.tar.gz", content, **fields)
    return hashlib.sha256(content).hexdigest()


async def test_the_newest_release_for_this_python_is_pinned_and_fetched_once(registry, tmp_path: Path) -> None:
    registry.add_wheel("shop", "9.0")  # no source
    release(registry, "0.9")
    right = release(registry, "1.0", upload_time="2020-05-06T07:08:09Z")
    release(registry, "1.1", yanked="broken")
    release(registry, "2.0", requires_python=">=99")
    release(registry, "3.0rc1")
    pin = await index.newest("Shop", upstreams(registry))
    assert (pin.name, pin.version, pin.sha256) == ("shop", "1.0", (right,))
    archive = await index.fetch(pin, tmp_path, upstreams(registry))
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == right
    assert index.uploaded(archive) == datetime.date(2020, 5, 6)
    checkout = from_archive(archive, name=pin.name, version=pin.version, uploaded=index.uploaded(archive))
    assert checkout.files.keys() == {"shop.py", "LICENSE"} and checkout.year == 2020
    asked = len(registry.asked)
    assert await index.fetch(pin, tmp_path, upstreams(registry)) == archive and len(registry.asked) == asked
    assert (await index.newest("shop", upstreams(registry), version="0.9")).version == "0.9"


async def test_what_the_index_does_not_have_is_named(registry, tmp_path: Path) -> None:
    registry.add_wheel("wheels-only", "1.0")
    digest = release(registry, "1.0")
    for name, version, why in (
        ("nothing", "", "has no nothing"),
        ("wheels-only", "", "no source distribution of it"),
        ("shop", "7", "shop 7: the index"),
    ):
        with pytest.raises(PackageError, match=why):
            await index.newest(name, upstreams(registry), version=version)
    with pytest.raises(PackageError, match="no source distribution with the pinned hash"):
        await index.fetch(pins.Pin("shop", "1.0", ("0" * 64,)), tmp_path, upstreams(registry))
    registry.files["/packages/shop-1.0.tar.gz"] += b"x"  # another file under the same name and hash
    with pytest.raises((PackageError, PackageUnavailable)):
        await index.fetch(pins.Pin("shop", "1.0", (digest,)), tmp_path, upstreams(registry))
    assert not list(tmp_path.iterdir())


async def test_an_index_that_cannot_be_reached_says_nothing_about_the_package() -> None:
    async with LocalRegistry() as gone:
        there = upstreams(gone)
    with pytest.raises(PackageUnavailable):
        await index.newest("shop", there)


async def test_a_source_that_is_too_large_is_not_fetched(registry, tmp_path: Path, monkeypatch) -> None:
    digest = release(registry, "1.0")
    monkeypatch.setattr(index, "MAX_PACKED_BYTES", 64)
    with pytest.raises(PackageError, match="is larger than 64 bytes"):
        await index.fetch(pins.Pin("shop", "1.0", (digest,)), tmp_path, upstreams(registry))
    assert not any(path.startswith("/packages/") for path in registry.paths())
