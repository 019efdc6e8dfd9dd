"""What every backend promises about environments and about the end of a sandbox."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import pytest

from sandbox.backends.base import (
    Backend,
    EnvSpec,
    Guarantee,
    Limits,
    LimitUnenforceable,
    Sandbox,
    SandboxExpired,
    SandboxLost,
    SandboxUnavailable,
)

from .conftest import output, write_tree


class TestEnvironments:
    async def test_layers_are_shared_and_never_written(self, backend: Backend, tmp_path: Path) -> None:
        upper = write_tree(tmp_path / "upper", {"repo/a.py": "upper\n"})
        lower = write_tree(tmp_path / "lower", {"repo/a.py": "lower\n", "repo/b.py": "b\n"})
        spec = EnvSpec(layers=(upper, lower))
        async with await backend.start(spec) as first, await backend.start(spec) as second:
            await first.exec("echo changed >a.py; rm b.py")
            assert await output(second, "cat a.py b.py") == "upper\nb"
        assert (upper / "repo/a.py").read_text() == "upper\n" and (lower / "repo/b.py").exists()

    async def test_no_layer_gives_an_empty_checkout(self, backend: Backend) -> None:
        async with await backend.start(EnvSpec(layers=())) as sandbox:
            assert await output(sandbox, "pwd; ls -A") == "/home/dev/repo"

    async def test_a_layer_path_used_again_for_other_files(self, backend: Backend, tmp_path: Path) -> None:
        for text in ("one\n", "two\n"):
            layer = write_tree(tmp_path / "same", {"repo/f": text})
            async with await backend.start(EnvSpec(layers=(layer,))) as sandbox:
                assert await output(sandbox, "cat f") == text.strip()
            layer.rename(tmp_path / f"old-{text.strip()}")

    async def test_missing_layer(self, backend: Backend, tmp_path: Path) -> None:
        with pytest.raises(SandboxUnavailable, match=r"absent.*No such file"):
            await backend.start(EnvSpec(layers=(tmp_path / "absent",)))

    async def test_limits_that_cannot_work(self, backend: Backend, env: EnvSpec) -> None:
        with pytest.raises(SandboxUnavailable, match="memory_bytes"):
            await backend.start(env, limits=Limits(memory_bytes=1))

    async def test_what_cannot_be_enforced_is_named_and_refused(self, backend: Backend, env: EnvSpec) -> None:
        found = backend.probe()
        everything = frozenset(get_args(Guarantee))
        if missing := everything - found.enforced:
            assert found.reasons
            with pytest.raises(LimitUnenforceable, match=sorted(missing)[0]):
                await backend.start(env, limits=Limits(required=everything))
        async with await backend.start(env, limits=Limits(required=found.enforced)) as sandbox:
            assert sandbox.limits.required == found.enforced and sandbox.name

    async def test_virtual_environments_work_wherever_the_interpreter_lives(self, sandbox: Sandbox) -> None:
        made = await sandbox.exec("python3 -m venv --without-pip ~/.venv", timeout=120)
        assert made.exit_code == 0, made.output.decode()
        code = "import ssl, sys, sysconfig; print(sys.prefix, sys.base_prefix == sysconfig.get_config_var('installed_base'))"
        assert await output(sandbox, f'~/.venv/bin/python -c "{code}"') == "/home/dev/.venv True"
        assert (
            await output(sandbox, "python -c 'import sys; print(*sys.argv[1:], sep=chr(10))' 'a b' '$c'") == "a b\n$c"
        )

    async def test_a_sweep_touches_nothing_alive(self, sandbox: Sandbox, backend: Backend) -> None:
        await backend.sweep()
        assert await output(sandbox, "echo alive") == "alive"


class TestEnd:
    async def test_close_twice_and_calls_afterwards(self, backend: Backend, env: EnvSpec) -> None:
        sandbox = await backend.start(env)
        pending = asyncio.create_task(sandbox.exec("sleep 60"))
        await asyncio.sleep(0)
        await sandbox.close()
        await sandbox.close()
        with pytest.raises(SandboxLost):
            await pending
        with pytest.raises(SandboxLost):
            await sandbox.read("main.py")

    async def test_life_is_limited(self, backend: Backend, env: EnvSpec) -> None:
        async with await backend.start(env, limits=Limits(life_seconds=0.5)) as sandbox:
            with pytest.raises(SandboxExpired, match="life was over"):
                await sandbox.exec("sleep 30", timeout=20)
            with pytest.raises(SandboxExpired):
                await sandbox.read("main.py")

    async def test_many_sandboxes(self, backend: Backend, env: EnvSpec) -> None:
        sandboxes = await asyncio.gather(*(backend.start(env) for _ in range(12)))
        results = await asyncio.gather(*(box.exec("echo $$ >mine; ls | wc -l") for box in sandboxes))
        assert {result.output for result in results} == {b"4\n"}
        await asyncio.gather(*(box.close() for box in sandboxes))
