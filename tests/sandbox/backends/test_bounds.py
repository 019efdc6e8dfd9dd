"""Sizes that a program in the sandbox, or an argument, decides: each meets a bound that is an error of its call, or a cut."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from sandbox.backends.base import Backend, EnvSpec, Limits, PathError, Sandbox, SnapshotTooLarge
from sandbox.backends.namespaces import layers
from sandbox.backends.namespaces.inside import protocol
from sandbox.backends.namespaces.storage import Storage, failure

from .attacks import alive, python

MANY = python("""
    import os
    os.mkdir("many")
    for number in range(19_000): open("many/" + "\\u4e00" * 80 + f"{number:05}", "w").close()
""")
DEEP = """
    import os
    for _ in range(6): os.mkdir("d" * 250); os.chdir("d" * 250)
    for number in range(3990): {}
"""
FOLDERS = python("""
    import os
    for number in range(51_000):
        if number % 500 == 0: os.makedirs(f"folders/{number}"); top = number
        os.mkdir(f"folders/{top}/{number}")
""")
LINKS = python("""
    import os
    os.makedirs("links/many"); os.chdir("links"); os.mkdir("a")
    step = "a/../" * 800
    os.symlink(step + "a", "0")
    for number in range(1, 38): os.symlink(f"{step}{number - 1}", f"{number}")
    for number in range(19_500): os.symlink("../37", f"many/{number}")
""")


@pytest.fixture
async def large(backend: Backend, env: EnvSpec):  # type: ignore[no-untyped-def]
    async with await backend.start(env, limits=Limits()) as made:
        yield made


@pytest.mark.integration
async def test_long_names(large: Sandbox) -> None:
    await large.exec(MANY)
    entries = await large.list("many")
    assert len(entries) == 19_000 and entries[0] == ("一" * 80 + "00000", "file", 0)
    with pytest.raises(PathError, match="no such file"):
        await large.read("many/none")
    await alive(large)


@pytest.mark.integration
@pytest.mark.parametrize(
    "entry", ['open(f"{number}", "w").close()', 'os.symlink("x", f"{number}")'], ids=["files", "links"]
)
async def test_a_patch_in_long_paths(large: Sandbox, entry: str) -> None:
    await large.exec(python(DEEP.format(entry)))
    await large.write("z.py", b"x = 1\n")
    patch = await large.diff()
    for paths in ([change.path for change in patch.changes], [path for path, _ in patch.skipped]):
        assert sum(map(len, paths)) <= layers.MAX_PATHS_BYTES + layers.MAX_DEPTH * 256
    assert len(patch.changes) + len(patch.skipped) > 1000
    await alive(large)


@pytest.mark.integration
async def test_a_patch_of_many_folders(large: Sandbox) -> None:
    await large.exec(FOLDERS)
    patch = await large.diff()
    assert patch.skipped and "the rest is left out" in patch.skipped[-1][1]
    await alive(large)


@pytest.mark.integration
async def test_links_that_take_long(large: Sandbox) -> None:
    await large.exec(LINKS)
    began = time.monotonic()
    assert len(await large.list("links/many")) == 19_500
    assert time.monotonic() - began < 50
    await alive(large)


async def test_requests_beyond_any_use(sandbox: Sandbox) -> None:
    for path in ("a/" * 1500 + "x", "a" * ((4 << 20) - 45)):
        with pytest.raises(PathError):
            await sandbox.write(path, b"x")
        with pytest.raises(PathError):
            await sandbox.list(path)
    for pattern in ("(?P<" + "\u2028" * 690_000 + ">x)", "(?P<" + "\u2028" * 60_000 + ">x)"):
        with pytest.raises(ValueError, match=r"longer than|not a regular expression"):
            await sandbox.search(pattern, ".", glob=None, max_matches=5)
    assert (await sandbox.exec("echo \ud800")).exit_code == 126
    await alive(sandbox)


async def test_what_runs_stands_still_and_goes_on_after_several_patches_at_once(sandbox: Sandbox) -> None:
    await sandbox.exec(": > /tmp/ticks; (while sleep 0.05; do echo >> /tmp/ticks; done) >/dev/null 2>&1 &")
    await asyncio.gather(*(sandbox.diff() for _ in range(4)))
    size = len(await sandbox.read("/tmp/ticks"))
    async with asyncio.timeout(20):
        while len(await sandbox.read("/tmp/ticks")) == size:
            await asyncio.sleep(0.02)


async def test_a_patch_that_cannot_be_answered_is_an_empty_one(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise SnapshotTooLarge("too large")

    monkeypatch.setattr(sandbox, "_supervisor", refuse)
    patch = await sandbox.diff()
    assert patch.changes == () and "too large" in patch.skipped[0][1]


def test_an_answer_that_is_too_large_is_an_error_of_its_call() -> None:
    for header, blob in (
        ({"id": 7, "x": "y" * protocol.MAX_HEADER_BYTES}, b""),
        ({"id": 7}, bytes(protocol.MAX_BLOB_BYTES + 1)),
    ):
        ((told, _),) = protocol.Decoder().feed(protocol.answer(header, blob))
        assert told["id"] == 7 and told["kind"] == "large" and "too large" in told["error"]


def test_what_a_tree_makes_of_a_reader_is_its_own_fault_and_what_the_machine_does_is_not() -> None:
    assert failure("diff", RecursionError("deep"))["kind"] == failure("diff", layers.TooLarge("x"))["kind"] == "large"
    assert "kind" not in failure("diff", OSError(5, "Input/output error"))


def test_a_folder_that_is_gone_when_it_is_listed(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "repo").mkdir()
    upper = os.open(tmp_path, os.O_RDONLY)
    inner = os.open(tmp_path / "repo", os.O_RDONLY)
    os.rmdir(tmp_path / "repo")
    try:
        difference = layers.Difference(1)
        difference.walk([inner], [])
        assert (difference.changes, difference.skipped) == ([], [])
        assert Storage(upper, [], 0).diff("repo")[0] == {"index": len('{"changes": [], "skipped": []}')}
    finally:
        os.close(inner)
        os.close(upper)
