"""Installing, system packages, the lock, the layers, and the list of commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import lock
from scripts.stack.layout import REPOSITORY


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def tools(folder: Path, *names: str) -> str:
    """A PATH with these programs and no other."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


def test_an_up_to_date_environment_is_left_alone() -> None:
    """The second start needs neither network nor time."""
    done = run(
        "bash", "scripts/install.sh", PIP_INDEX_URL="http://127.0.0.1:9/none", UV_INDEX_URL="http://127.0.0.1:9/"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_system_packages_are_named_with_the_command_to_type(tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", "bash", "id", "python3")
    done = run("bash", "scripts/system.sh", "test", PATH=path, CHROMIUM="")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert "sudo apt-get install" in lines[0]
    assert all(package in lines[0] for package in ("git", "util-linux", "chromium"))


def test_a_browser_named_by_the_user_is_enough(tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", "bash", "id", "python3", "git", "unshare", "flock", "node")
    assert run("bash", "scripts/system.sh", "test", PATH=path, CHROMIUM="").returncode == 1
    assert run("bash", "scripts/system.sh", "test", PATH=path, CHROMIUM=sys.executable).returncode == 0


def test_a_python_that_is_too_old_is_refused_with_the_remedy(tmp_path: Path) -> None:
    clone = clone_of_scripts(tmp_path)
    path = tools(tmp_path / "bin", "bash", "dirname", "flock", "cat", "sha256sum", "cut", "id", "git", "unshare")
    old = tmp_path / "bin" / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = run("bash", str(clone / "scripts" / "install.sh"), PATH=path, PYTHON="")
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr


def test_a_python_without_ensurepip_names_its_package(tmp_path: Path) -> None:
    """As on a bare Debian, where python3-venv is a package of its own."""
    clone = clone_of_scripts(tmp_path)
    path = tools(tmp_path / "bin", "bash", "dirname", "flock", "cat", "sha256sum", "cut", "id", "git", "unshare")
    python = tmp_path / "bin" / "python3"
    python.write_text(
        '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; *venv*) echo python3.11-venv ;; *) exit 0 ;; esac\n'
    )
    python.chmod(0o755)
    done = run("bash", str(clone / "scripts" / "install.sh"), PATH=path, PYTHON="")
    assert done.returncode == 1
    assert re.search(r"missing: python3\.11-venv\. Type: sudo apt-get install .*python3\.11-venv", done.stderr)
    assert not (clone / ".venv").exists()


def clone_of_scripts(folder: Path) -> Path:
    clone = folder / "clone"
    (clone / "scripts").mkdir(parents=True)
    for name in ("scripts/install.sh", "scripts/system.sh", "requirements-torch.txt", "requirements.lock"):
        shutil.copy(REPOSITORY / name, clone / name)
    return clone


def test_the_lock_is_current_and_names_no_host() -> None:
    assert lock.problems(lock.LOCK.read_text()) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--index-url https://mirror.example/simple", "names a host"),
        ("wheel @ https://files.example/wheel.whl", "names a host"),
        ("torch==2.13.0", "names torch"),
    ],
)
def test_a_lock_that_would_not_install_elsewhere_is_refused(line: str, reason: str) -> None:
    assert any(reason in problem for problem in lock.problems(f"{lock.LOCK.read_text()}{line}\n"))


def test_a_requirement_missing_from_the_lock_is_named() -> None:
    text = re.sub(r"^django==", "other==", lock.LOCK.read_text(), flags=re.MULTILINE)
    assert lock.problems(text) == ["django~=5.2.0 is not in requirements.lock: run `make lock`"]


def test_every_locked_package_carries_hashes() -> None:
    packages = re.split(r"^(?=[a-zA-Z0-9])", lock.LOCK.read_text(), flags=re.MULTILINE)[1:]
    assert len(packages) > 100
    assert all("--hash=sha256:" in package for package in packages)


@pytest.mark.parametrize(
    ("module", "absent"),
    [("trainer.config", ("torch", "transformers", "django")), ("sandbox.tasks.spec", ("torch", "django"))],
)
def test_light_modules_import_without_heavy_ones(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {absent!r} if name in sys.modules])"
    done = run(sys.executable, "-c", code)
    assert done.stdout.strip() == "[]", done.stderr


def test_help_lists_every_command() -> None:
    done = run("make", "help")
    listed = set(re.findall(r"^  make (\S+)", done.stdout, flags=re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony is not None
    assert listed == set(phony[1].split())


def test_a_bench_without_a_name_says_what_to_type() -> None:
    done = run("make", "bench", NAME="")
    assert done.returncode != 0
    assert "make bench NAME=sandbox" in done.stderr


@pytest.mark.parametrize("target", ["test", "test-integration"])
def test_a_failure_is_not_run_again(target: str) -> None:
    """A second run that passes would hide a flaky test."""
    done = run("make", "--dry-run", target)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"-m pytest\b", done.stdout)) == 1
    assert "--last-failed" not in done.stdout and "||" not in done.stdout.partition("-m pytest")[2]
