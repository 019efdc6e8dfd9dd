"""Trees that a hostile repository may hold: every operation answers, within its bounds, or refuses by type."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandbox.backends.base import Backend, EnvSpec, Limits, PathError, Sandbox, SnapshotTooLarge

from .attacks import alive, python
from .conftest import MIB

pytestmark = pytest.mark.usefixtures("unchanged_host")

ZOO = python("""
    import os, socket
    os.makedirs("zoo"); os.chdir("zoo")
    names = ["-rf", "a b", "\\n", "\\t\\x1b[31m", "…名前", "x" * 255, "..x", "$(id)", "`id`", "*", "'\\"", "%41", "a\\\\b"]
    for name in [*map(str.encode, names), b"\\xff\\xfe", b"\\xed\\xa0\\x80"]:
        open(name, "w").write("needle\\n")
    os.symlink("loop", "loop"); os.symlink("/", "root"); os.symlink(".", "here"); os.symlink("x" * 4000, "nowhere")
    os.symlink("/proc/self/fd/0", "input"); os.symlink("/dev/zero", "zeros"); os.symlink("/dev/tty", "terminal")
    os.symlink("/proc/self/mem", "memory"); os.symlink("/proc/kmsg", "log"); os.mkfifo("pipe")
    socket.socket(socket.AF_UNIX).bind("socket")
    os.truncate(os.open("sparse", os.O_CREAT | os.O_WRONLY), 2**27)
    open("long", "w").write("needle" * 200_000)
    open("closed", "w").write("needle"); os.chmod("closed", 0)
    os.mkdir("shut"); open("shut/file", "w").write("needle"); os.chmod("shut", 0)
    os.link("a b", "same")
    where = os.getcwd()
    for _ in range(90):
        os.mkdir("d" * 200); os.chdir("d" * 200)
    open("bottom", "w").write("needle")
    os.chdir(where); os.mkdir("many"); os.chdir("many")
    for number in range(2500): open(str(number), "w").close()
""")


@pytest.fixture
async def zoo(backend: Backend, env: EnvSpec):  # type: ignore[no-untyped-def]
    limits = Limits(memory_bytes=256 * MIB, disk_bytes=64 * MIB, inodes=6000, processes=64)
    async with await backend.start(env, limits=limits) as made:
        result = await made.exec(ZOO, timeout=60)
        assert result.exit_code == 0, result.output
        yield made


async def test_listing_and_reading(zoo: Sandbox) -> None:
    entries = await zoo.list("zoo")
    assert len(entries) > 30 and len(await zoo.list("zoo/many")) == 2500
    kinds = {name: kind for name, kind, _ in entries}
    assert (kinds["root"], kinds["loop"], kinds["pipe"], kinds["-rf"]) == ("dir", "other", "other", "file")
    contents, refused = {}, set()
    async with asyncio.timeout(60):
        for name, _, _ in entries:
            try:
                contents[name] = await zoo.read(f"zoo/{name}")
            except PathError:
                refused.add(name)
    assert refused >= {"loop", "root", "nowhere", "input", "zeros", "memory", "log", "pipe", "sparse", "closed", "shut"}
    assert contents["\n"] == contents["x" * 255] == contents["$(id)"] == b"needle\n"
    for path in ("zoo/" + "d" * 200 + ("/" + "d" * 200) * 89 + "/bottom", "x" * 256, "zoo/" * 3000):
        with pytest.raises(PathError):
            await zoo.read(path)
    await alive(zoo)


async def test_writing_and_deleting(zoo: Sandbox) -> None:
    async with asyncio.timeout(60):
        for name in (
            "loop",
            "root",
            "here",
            "nowhere",
            "zeros",
            "memory",
            "log",
            "pipe",
            "socket",
            "many",
            "shut/file",
        ):
            with pytest.raises(PathError):
                await zoo.write(f"zoo/{name}", b"x")
        for name in ("many", "pipe", "socket", "shut/file", "absent"):
            with pytest.raises(PathError):
                await zoo.delete(f"zoo/{name}")
        for name in ("-rf", "\n", "$(id)", "loop", "root", "%41"):
            await zoo.delete(f"zoo/{name}")
    await zoo.write("zoo/\n", b"again")
    assert await zoo.read("zoo/\n") == b"again"
    assert (await zoo.exec("ls / | wc -l")).output.strip() != b"0"
    await alive(zoo)


async def test_searching(zoo: Sandbox) -> None:
    found = await zoo.search("needle", "zoo", glob=None, max_matches=1000)
    paths = {path for path, _, _ in found}
    assert {"zoo/a b", "zoo/same", "zoo/…名前"} <= paths and all(len(text) <= 400 for _, _, text in found)
    assert not any("shut" in path or "closed" in path or path.startswith("zoo/root") for path in paths)
    await alive(zoo)


async def test_the_patch(zoo: Sandbox) -> None:
    patch = await zoo.diff()
    changed, skipped = {change.path for change in patch.changes}, dict(patch.skipped)
    assert {"zoo/a b", "zoo/$(id)", "zoo/shut/file", "zoo/closed", "zoo/many/7"} <= changed
    assert all(path.startswith("zoo/") and ".." not in path.split("/") for path in changed)
    assert not any(ord(char) < 32 for path in changed for char in path)
    reasons = set(skipped.values())
    assert "nested too deeply" in reasons and "symbolic link" in reasons and "not a regular file" in reasons
    assert "larger than" in skipped["zoo/sparse"]
    await alive(zoo)


async def test_a_snapshot(zoo: Sandbox, backend: Backend, env: EnvSpec, tmp_path: Path) -> None:
    with pytest.raises(SnapshotTooLarge):
        await zoo.snapshot(tmp_path / "sparse")
    await zoo.exec("rm zoo/sparse")
    snapshot = await zoo.snapshot(tmp_path / "kept")
    count = (
        "find zoo -printf '%y %m %l\\n' 2>/dev/null | sort | md5sum; ls -b zoo | md5sum; "
        "find zoo -type f -printf '%s %T@\\n' 2>/dev/null | sort | md5sum"
    )
    before = (await zoo.exec(count, timeout=60)).output
    async with await backend.start(env, snapshot=snapshot) as again:
        sockets = (await zoo.exec("rm zoo/pipe zoo/socket; " + count, timeout=60)).output  # those are not kept
        assert (await again.exec(count, timeout=60)).output == sockets != before
        await alive(again)


async def test_more_entries_than_are_listed(backend: Backend, env: EnvSpec) -> None:
    limits = Limits(disk_bytes=64 * MIB, inodes=40_000)
    async with await backend.start(env, limits=limits) as sandbox:
        await sandbox.exec("mkdir crowd; cd crowd; seq 20001 | xargs touch", timeout=60)
        with pytest.raises(PathError, match="more than 20000"):
            await sandbox.list("crowd")
        patch = await sandbox.diff()
        assert len(patch.changes) == 4000 and any("left out" in reason for _, reason in patch.skipped)
        await sandbox.exec("cd ~/repo")
        await alive(sandbox)
