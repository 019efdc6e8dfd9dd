"""`python -m sandbox.network`: the proxy by hand, and its audit log."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from sandbox.network.__main__ import main
from sandbox.network.upstream import SETTINGS
from tests.sandbox.network.local_registry import LocalRegistry
from tests.sandbox.network.running import Proxy

ROOT = Path(__file__).resolve().parents[3]


async def test_serve_and_audit(
    registry: LocalRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.add_wheel("lib", "1.0")
    log = tmp_path / "audit.jsonl"
    for kind in ("python", "npm", "go"):
        monkeypatch.setenv(SETTINGS[kind], registry.index)
    command = [sys.executable, "-m", "sandbox.network", "serve", "--port", "0", "--deny", "Target", "--audit", str(log)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line, shown = "", "export PIP_INDEX_URL=http://127.0.0.1:"
            while not line.startswith(shown):
                line = (await process.stdout.readline()).decode().strip()
            port = int(line.removeprefix(shown).removesuffix("/simple/"))
            proxy = Proxy(f"http://127.0.0.1:{port}", port)
            assert (await proxy.get("/files/lib/lib-1.0-py3-none-any.whl")).status == 200
            assert (await proxy.get("/files/target/target-1.0-py3-none-any.whl")).status == 403
            process.send_signal(signal.SIGINT)
            rest = (await process.stdout.read()).decode()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "by-hand denied [package] GET /files/target/" in rest and "by-hand allowed GET /files/lib/" in rest
    assert main(["audit", str(log), "--denied"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and "[package]" in said[0] and said[1].startswith("1 allowed, 1 denied; ")


def test_faults_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("python", "npm", "go"):
        monkeypatch.setenv(SETTINGS[kind], "http://127.0.0.1:1/")
    policy = tmp_path / "policy.json"
    policy.write_text('{"python": {"max_versions": {"lib": "new"}}}')
    assert main(["serve", "--policy", str(policy)]) == 1
    assert "policy: python.max_versions: Value error, max_versions: lib = 'new'" in capsys.readouterr().err
    assert main(["serve", "--max", "lib"]) == 1 and "lib = ''" in capsys.readouterr().err
    assert main(["audit", str(tmp_path / "absent")]) == 1 and "absent" in capsys.readouterr().err
    monkeypatch.setenv(SETTINGS["python"], "http://me:secret@127.0.0.1:1/")
    assert main(["upstreams"]) == 0
    out = capsys.readouterr().out
    assert "python http://127.0.0.1:1/ private credentials\n" in out and "secret" not in out
    monkeypatch.setenv(SETTINGS["python"], "gopher://x")
    assert main(["serve", "--port", "0"]) == 1
    assert "OPENCOMPOSER_PYTHON_INDEX" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", "--before", "soon"])
