"""Archives and pages from strangers: understood, or refused as unreadable; never a surprise, never without bounds."""

from __future__ import annotations

import asyncio
import json
import struct

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mousebender.simple import UnsupportedAPIVersion, UnsupportedMIMEType

from sandbox.network import archives
from sandbox.network.archives import Held, refuse_modules
from sandbox.network.fetch import RegistryFailed
from sandbox.network.policy import Denied
from sandbox.network.python_index import parse_page, version_of
from tests.sandbox.network.local_registry import JSON_TYPE, tarball, wheel

TARGET = frozenset({"target"})


def judge(filename: str, content: bytes) -> str:
    """`fine`, `denied` or `unreadable`."""
    held = Held()
    held.content.write(content)
    held.content.seek(0)
    try:
        asyncio.run(refuse_modules(filename, held, TARGET))
    except Denied:
        return "denied"
    except RegistryFailed:
        return "unreadable"
    finally:
        held.close()
    return "fine"


WHEEL = "a-1-py3-none-any.whl"


@pytest.mark.parametrize(
    ("filename", "paths", "found"),
    [
        (WHEEL, ["target.py"], "denied"),
        (WHEEL, ["target/x/y.py"], "denied"),
        (WHEEL, ["target.cpython-311-x86_64-linux-gnu.so"], "denied"),
        (WHEEL, ["a-1.data/platlib/target/x.py"], "denied"),
        (WHEEL, ["./target/x.py"], "denied"),
        (WHEEL, ["target/notes.txt", "a/target.py", "targets.py"], "fine"),
        (WHEEL, ["a-1.data/scripts/target.py"], "fine"),
        ("a-1.tar.gz", ["a-1/target/__init__.py"], "denied"),
        ("a-1.tar.gz", ["a-1/src/target.pyc"], "denied"),
        ("a-1.tar.gz", ["a-1/tests/target.py", "a-1/docs/target/x.py"], "fine"),
        ("a-1.zip", ["a-1/target.py"], "denied"),
    ],
)
def test_denied_modules_are_found(filename: str, paths: list[str], found: str) -> None:
    files = dict.fromkeys(paths, "text")
    assert judge(filename, tarball(files) if filename.endswith(".gz") else wheel("a", "1", files)) == found


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"\x1f\x8b", b"text"])
def test_what_cannot_be_read(content: bytes) -> None:
    assert [judge(filename, content) for filename in (WHEEL, "a-1.zip", "a-1.tar.gz")] == ["unreadable"] * 3


def test_directories_and_contents_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = wheel("a", "1")
    end = packed.rfind(b"PK\x05\x06")
    huge = packed[: end + 12] + struct.pack("<I", 1 << 30) + packed[end + 16 :]
    assert judge(WHEEL, huge) == "unreadable"
    locator = packed[:end] + b"PK\x06\x07" + bytes(16) + packed[end:]
    assert judge(WHEEL, locator) == "unreadable"
    monkeypatch.setattr(archives, "MAX_ENTRIES", 10)
    assert judge("a-1.tar.gz", tarball({f"a-1/{number}": "" for number in range(20)})) == "unreadable"
    monkeypatch.setattr(archives, "MAX_UNPACKED", 1000)
    assert judge("a-1.tar.gz", tarball({"a-1/large": "x" * 2000})) == "unreadable"


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.sampled_from([wheel("a", "1"), tarball({"a-1/a.py": "text"})]),
    st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=8)), max_size=4),
    st.integers(0, 3000),
)
def test_damaged_archives(content: bytes, changes: list[tuple[int, bytes]], length: int) -> None:
    damaged = bytearray(content)
    for place, data in changes:
        damaged[place % len(damaged) : place % len(damaged) + len(data)] = data
    for filename in (WHEEL, "a-1.tar.gz"):
        assert judge(filename, bytes(damaged[:length])) in ("fine", "denied", "unreadable")


@given(st.text(max_size=60))
def test_versions_come_from_names_that_are_understood(text: str) -> None:
    for filename in (text, f"lib-{text}.tar.gz", f"lib-{text}-py3-none-any.whl"):
        version = version_of("lib", filename)
        assert version is None or filename.lower().replace("_", "-").startswith("lib-")


HTML = st.text("<a href=\"#sha256'>/=&;x!-[]data-yanked \n", max_size=200)
FIELDS = st.sampled_from(["files", "filename", "url", "hashes", "size", "yanked", "upload-time"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4))


@given(
    HTML | st.binary(max_size=100),
    st.sampled_from(["text/html", JSON_TYPE, "application/vnd.pypi.simple.v1+html", "x/y"]),
)
@example("<![\0", "text/html")
def test_any_page_is_understood_or_refused(page: str | bytes, kind: str) -> None:
    body = page if isinstance(page, bytes) else page.encode()
    try:
        files = parse_page("lib", body, kind, "http://x.test/simple/lib/")
    except (ValueError, KeyError, TypeError, RecursionError, UnsupportedMIMEType, UnsupportedAPIVersion):
        return
    assert all(isinstance(file.url, str) and file.filename == str(file.filename) for file in files)


@given(JSON)
def test_any_json_page_is_understood_or_refused(page: object) -> None:
    try:
        parse_page("lib", json.dumps(page).encode(), JSON_TYPE, "http://x.test/simple/lib/")
    except (ValueError, KeyError, TypeError, RecursionError):
        return
