"""The virtual environment of one attempt in its sandbox: commands, installations and their limits."""

from __future__ import annotations

import datetime
import json
import re
import shlex
from pathlib import Path
from typing import Any

from sandbox.backends.base import HOME, ExecResult, Sandbox
from sandbox.install.recipes.base import Log, step
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.install.recipes.python import project
from sandbox.install.recipes.python.repair import era_constraints
from sandbox.repositories.checkout import Checkout

INSIDE = Path(__file__).parent / "inside"
VENV = f"{HOME}/.venv"
PYTHON = f"{VENV}/bin/python3"
VERSION_VARIABLES = ("SETUPTOOLS_SCM_PRETEND_VERSION", "PBR_VERSION", "PDM_BUILD_SCM_VERSION", "HATCH_VCS_PRETEND_VERSION",
                     "POETRY_DYNAMIC_VERSIONING_BYPASS")  # fmt: skip
"""Where build backends look for a version that git would tell them."""
BOUNDS = "/tmp/bounds.txt"  # noqa: S108 (inside the sandbox)
BUILD_BOUNDS = "/tmp/build-bounds.txt"  # noqa: S108
BUILDERS = (
    "setuptools",
    "cython",
    "numpy",
    "wheel",
    "pybind11",
    "hatchling",
    "poetry-core",
    "flit-core",
    "setuptools-scm",
)
"""Bounds that also hold for what builds a package."""
INSTALL_SECONDS = 600.0
PROBE_SECONDS = 120.0
SETTINGS = {"PIP_NO_INPUT": "1", "CI": "1", "UV_NO_CONFIG": "1", "UV_NO_SOURCES": "1"}
"""A checkout's own uv settings (date cuts, other indexes, sibling folders) are for its maintainers' machines."""
SLACK_DAYS = 365
"""What appeared within so many days after a release is what its tests were run with, at some time."""
FIRST_DAY = datetime.date(2022, 12, 1)
"""Before it, the index has next to nothing that is built for the Pythons of today."""
DATED_ATTEMPT = 2


class Venv:
    """Made by `make`; bounds hold for every later installation of the attempt."""

    def __init__(self, box: Sandbox, checkout: Checkout, attempt: int, log: Log) -> None:
        self.box, self.checkout, self.attempt, self.log = box, checkout, attempt, log
        self.bounds = era_constraints(checkout.year) if attempt in (2, 3, 4) else []
        self.build_bounds = [b for b in self.bounds if b.startswith(BUILDERS)]
        self.env = {
            "PATH": f"{VENV}/bin:{HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin",
            "VIRTUAL_ENV": VENV,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        """Variables that every command of the finished environment has."""
        version = checkout.version or "0.0.0"
        self.variables = dict.fromkeys(VERSION_VARIABLES, version) | SETTINGS
        """Variables of the installation alone."""

    async def make(self) -> None:
        """Raises InstallFailed when this machine's Python does not suit."""
        made = await self.run(
            f'uv venv -q --python "$(readlink -f "$(command -v python3)")" {VENV} && {PYTHON} -c '
            "'import sys; print(\"python %d.%d.%d\" % sys.version_info[:3])'",
            PROBE_SECONDS,
        )
        found = re.search(rb"python (\d+\.\d+\.\d+)", made.output)
        if made.exit_code != 0 or found is None:
            raise InstallFailed(
                Reason.LANGUAGE_VERSION, "no usable python3 in the sandbox", remedy="Install python3 3.11 or later"
            )
        wanted, have = project.python_specifier(self.checkout), found[1].decode()
        if wanted is not None and not wanted.contains(have, prereleases=True):
            raise InstallFailed(
                Reason.LANGUAGE_VERSION,
                f"it requires Python {wanted}, this machine's sandboxes have {have}",
                remedy="Run it where such a Python is installed",
            )
        if self.attempt == DATED_ATTEMPT and self.checkout.released is not None:
            self.variables["UV_EXCLUDE_NEWER"] = self.last_day().isoformat()
            self.log(f"packages of {self.last_day()} and earlier")
        if self.bounds:
            self.log(f"bounds of {self.checkout.year}: {', '.join(self.bounds)}")
        await self.write_bounds()

    def last_day(self) -> datetime.date:
        """What was uploaded later cannot have been there when the checkout was tested."""
        released = self.checkout.released or datetime.datetime.now(datetime.UTC).date()
        return max(released + datetime.timedelta(days=SLACK_DAYS), FIRST_DAY)

    async def bound(self, *lines: str) -> bool:
        """Further bounds for what builds; whether any of them is new."""
        new = [line for line in lines if line not in self.build_bounds]
        self.build_bounds += new
        await self.write_bounds()
        return bool(new)

    async def export(self) -> None:
        """Into the shell's state, which runs of the suite are in: what a state holds goes over what a later call is given."""
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.env.items())
        await self.box.exec(f"export {words}", timeout=PROBE_SECONDS)

    async def write_bounds(self) -> None:
        await self.box.write(BOUNDS, ("\n".join(self.bounds) + "\n").encode())
        await self.box.write(BUILD_BOUNDS, ("\n".join(self.build_bounds) + "\n").encode())

    async def pip(self, *wanted: str, options: str = "") -> ExecResult:
        names = " ".join(w if w.startswith("$(") else shlex.quote(w) for w in wanted)
        return await self.run(
            f"uv pip install -q --python {VENV} -c {BOUNDS} -b {BUILD_BOUNDS} {options} {names} </dev/null",
            INSTALL_SECONDS,
        )

    async def pip_each(self, wanted: list[str]) -> bool:
        """Install one after the other, a second time without version bounds; whether any could be installed."""
        some = False
        for line in wanted:
            done = await self.pip(line)
            if done.exit_code != 0 and (plain := re.split(r"[<>=!~ ;]", line)[0]) != line:
                done = await self.pip(plain)
            some = some or done.exit_code == 0
        return some

    async def older(self, module: str) -> bool:
        """Take the package that has an installed `module` as it was when the checkout was released; whether it changed."""
        if self.checkout.released is None:
            return False
        before = await self.owner(module)
        for days in (0, SLACK_DAYS, 2 * SLACK_DAYS):
            day = self.checkout.released + datetime.timedelta(days=days)
            name = before.partition("==")[0]
            if not name or day >= datetime.datetime.now(datetime.UTC).date():
                return False
            done = await self.pip(name, options=f"--reinstall-package {name} --exclude-newer {day}")
            if done.exit_code == 0:
                return await self.owner(module) != before
        return False

    async def owner(self, module: str) -> str:
        """`name==version` of the installed package that has a top-level module; empty for none."""
        found = await self.script("owner.py", shlex.quote(module))
        return str(found["owner"])

    async def script(self, name: str, arguments: str, python: str = PYTHON) -> dict[str, Any]:
        """What a script of `inside/` prints, run by the environment's Python. Raises InstallFailed."""
        text = (INSIDE / name).read_text(encoding="utf-8")
        result = await self.box.exec(
            f"{python} -c {shlex.quote(text)} {arguments}", timeout=PROBE_SECONDS, keep_state=False
        )
        lines = result.output.decode("utf-8", "replace").strip().splitlines()
        try:
            found = json.loads(lines[-1]) if result.exit_code == 0 and lines else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise InstallFailed(Reason.INSTALL, f"{name} failed in the environment: {' '.join(lines)[-300:]}")
        return found

    async def run(self, command: str, seconds: float) -> ExecResult:
        return await step(self.box, command, self.log, seconds=seconds, env=self.variables)
