"""The same code as root and as an ordinary user: without control groups of its own, under the watchdog."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .scenario import scenario

ROOT = Path(__file__).resolve().parents[4]
SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534


def check(found: dict) -> None:
    assert found["usable"], found["reasons"]
    assert found["said"] == ["dev", "42"] and found["state"] == ["/tmp", "1"]
    assert [tuple(match) for match in found["search"]] == [("main.py", 2, "y = 2"), ("pkg/new.py", 1, "z")]
    assert [tuple(change) for change in found["diff"]] == [("main.py", "x = 1\ny = 2\n"), ("pkg/new.py", "z\n")]
    assert ("cpu" in found["enforced"]) == (found["refused"] == "")
    assert "cpu" in found["enforced"] or all(reason in found["refused"] for reason in found["reasons"])
    assert found["bomb"] == ["timeout", 0]
    assert found["hog"] == found["shared"] == "memory" and found["hidden"] == ["memory", 0]
    assert found["memfd"] in ("refused", "memory")
    assert found["disk"] and found["network"] != 0 and found["alive"] == "alive"
    assert found["restored"] == ["/tmp", "z"]


async def test_as_we_are(tmp_path: Path) -> None:
    check(await scenario(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="we are an ordinary user already")
def test_as_an_ordinary_user(tmp_path: Path) -> None:
    if not os.path.exists(SYSTEM_PYTHON) or shutil.which("setpriv") is None:
        pytest.skip("needs a system python3 and setpriv")
    version = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True
    )
    if version.stdout != b"True\n":
        pytest.skip("the system python3 is older than 3.11")
    home = Path("/var/tmp") / f"opencomposer-user-{os.getpid()}"  # pytest's own folders are closed to other users
    try:
        shutil.copytree(ROOT / "sandbox/backends", home / "sandbox/backends")
        (home / "sandbox/__init__.py").touch()
        shutil.copy(Path(__file__).with_name("scenario.py"), home)
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", SYSTEM_PYTHON, "scenario.py"]
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(home)}
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        check(found)
        assert {"memory", "processes", "disk"} <= set(found["enforced"])
        assert (found["cgroup"] != "none") or any("watchdog" in reason for reason in found["reasons"])
    finally:
        shutil.rmtree(home)


def test_the_backend_needs_the_standard_library_only() -> None:
    modules = ("backend", "zygote")
    source = "import sys; sys.path.insert(0, '.'); " + "; ".join(
        f"import sandbox.backends.namespaces.{m}" for m in modules
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", source], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
