"""The Python recipe: build a wheel, install it with what its tests need, and let the checkout take its place.

Attempts differ: everything at its newest; bounded to the checkout's era; built beside older build tools; and last not
built at all, the sources put on the path with their declared dependencies. Each ends with a run of the suite, so that
missing modules, plugins and fixtures are found and added.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from sandbox.backends.base import HOME, WORKDIR, ExecResult, Sandbox
from sandbox.grading.adapters.base import Order, TestRun, files_of
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.suite import collect
from sandbox.install import diagnosis
from sandbox.install.checkout import Checkout, strings
from sandbox.install.errors import InstallFailed, Reason
from sandbox.install.goals import SHARE, Goal, judge_suite
from sandbox.install.python import goals as python_goals
from sandbox.install.python import project, requirements
from sandbox.install.python.repair import era_constraints, missing
from sandbox.install.recipe import Installed, Log, build_failure, step
from sandbox.install.services import local
from sandbox.network import RegistryPolicy

INSIDE = Path(__file__).parent / "inside"
VENV = f"{HOME}/.venv"
PYTHON = f"{VENV}/bin/python3"
VERSION_VARIABLES = ("SETUPTOOLS_SCM_PRETEND_VERSION", "PBR_VERSION", "PDM_BUILD_SCM_VERSION", "HATCH_VCS_PRETEND_VERSION",
                     "POETRY_DYNAMIC_VERSIONING_BYPASS")  # fmt: skip
"""Where build backends look for a version that git would tell them."""
WHEELS = "/tmp/wheels"  # noqa: S108 (inside the sandbox)
BUILD_VENV = "/tmp/build-tools"  # noqa: S108
SOURCE = "/tmp/source"  # noqa: S108
BUILD_SECONDS = 900.0
INSTALL_SECONDS = 600.0
PROBE_SECONDS = 120.0
SUITE_SECONDS = 90.0
"""Processor time of one run of the suite; only a test that does not end gets there."""
SUITE_BUDGET = 30.0
"""Of a suite that takes longer, a sample that takes about so long stands for the whole."""
HANGING = 2
"""So many tests that do not end are left out, one after the other."""
ROUNDS = 3
SETTINGS = {"PIP_NO_INPUT": "1", "CI": "1", "UV_NO_CONFIG": "1", "UV_NO_SOURCES": "1"}
"""A checkout's own uv settings (date cuts, other indexes, sibling folders) are for its maintainers' machines."""
QUIET_PLUGINS = ("xdist", "cov", "sugar", "randomly", "random-order", "html", "flake8", "black", "mypy", "pylint", "isort",
                 "rerunfailures", "forked", "picked", "testmon", "checkdocs", "enabler", "ruff")  # fmt: skip
"""Plugins that change how a run goes or what it prints; they are not loaded."""
BUILD_TOOLS = ("setuptools<70", "wheel", "cython<3.1", "numpy", "cffi", "setuptools-scm", "six", "pbr")
TOOL_LINES = "rm -rf ~/.cache ~/.local/share/uv ~/.local/state"
LAYOUT_ERROR = "it cannot be told where in the checkout the package lies"


class PythonRecipe:
    language = "python"
    registries = RegistryPolicy()

    def applies(self, checkout: Checkout) -> bool:
        names = ("pyproject.toml", "setup.py", "setup.cfg")
        return any(n in checkout.files for n in names) or any(p.endswith(".py") for p in checkout.files)

    def goals(self, checkout: Checkout) -> list[Goal]:
        return python_goals.goals(checkout)

    async def install(self, box: Sandbox, checkout: Checkout, *, attempt: int, log: Log) -> Installed:
        work = _Work(box, checkout, attempt, log)
        await work.interpreter()
        await work.package()
        return await work.tests()

    async def clean(self, box: Sandbox, checkout: Checkout, installed: Installed, log: Log) -> None:
        """Byte code of the checkout itself is never written (PYTHONDONTWRITEBYTECODE); services end in good order."""
        await local.stop(box, log)


class _Work:
    """One attempt in one sandbox."""

    def __init__(self, box: Sandbox, checkout: Checkout, attempt: int, log: Log) -> None:
        self.box, self.checkout, self.attempt, self.log = box, checkout, attempt, log
        self.bounds = era_constraints(checkout.year) if attempt in (2, 3, 4) else []
        self.roots: tuple[str, ...] = project.layout(checkout).roots
        self.modules = project.layout(checkout).modules
        self.tried: set[str] = set()
        self.hanging: list[str] = []
        """Tests that did not end."""
        self.env = {
            "PATH": f"{VENV}/bin:{HOME}/.local/bin:/usr/local/bin:/usr/bin:/bin",
            "VIRTUAL_ENV": VENV,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        version = checkout.version or "0.0.0"
        self.variables = dict.fromkeys(VERSION_VARIABLES, version) | SETTINGS

    async def interpreter(self) -> None:
        """Make the virtual environment. Raises InstallFailed when this machine's Python does not suit."""
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
        bounds = "\n".join(self.bounds) + "\n"
        await self.box.write("/tmp/bounds.txt", bounds.encode())  # noqa: S108
        build = [b for b in self.bounds if b.startswith(("setuptools", "cython", "numpy"))]
        await self.box.write("/tmp/build-bounds.txt", ("\n".join(build) + "\n").encode())  # noqa: S108
        if self.bounds:
            self.log(f"bounds of {self.checkout.year}: {', '.join(self.bounds)}")

    async def package(self) -> None:
        """Install the package itself, then graft it onto the checkout."""
        if self.attempt >= 4:
            await self.sources_only()
            return
        how = f"--python {PYTHON} --build-constraints /tmp/build-bounds.txt"
        if self.attempt == 3:
            declared = strings(self.checkout.table("build-system").get("requires"))
            own = [line for line in declared if not line.lower().startswith(("setuptools", "cython", "numpy"))]
            names = " ".join(shlex.quote(t) for t in (*BUILD_TOOLS, *own))
            await self.run(
                f"uv venv -q --python $({PYTHON} -c 'import sys; print(sys._base_executable)') {BUILD_VENV} && "
                f"uv pip install -q --python {BUILD_VENV} {names}",
                INSTALL_SECONDS,
            )
            how = f"--no-build-isolation --python {BUILD_VENV}"
        built = await self.run(
            f"cp -r {WORKDIR} {SOURCE} && cd {SOURCE} && uv build --wheel {how} --out-dir {WHEELS} . "
            f"</dev/null && ls {WHEELS}",
            BUILD_SECONDS,
        )
        if built.exit_code != 0:
            raise build_failure(built, "building it failed")
        extras = requirements.test_extras(await self.extras())
        wanted = f"[{','.join(extras)}]" if extras else ""
        done = await self.pip(f"$(ls {WHEELS}/*.whl | head -1){wanted}")
        if done.exit_code != 0 and wanted:
            self.log("its test extras cannot all be installed: the package alone first")
            done = await self.pip(f"$(ls {WHEELS}/*.whl | head -1)")
        if done.exit_code != 0:
            raise build_failure(done, "installing it failed")
        grafted = await self.script("graft.py", f"{WORKDIR} {WHEELS}/*.whl")
        self.roots = tuple(grafted["roots"]) or (".",)
        self.modules = tuple(dict.fromkeys(m for m in grafted["modules"] if m.isidentifier()))
        if grafted["kept"]:
            self.log(f"{LAYOUT_ERROR}: {', '.join(grafted['kept'])}")

    async def extras(self) -> list[str]:
        """The extras that the built wheel offers."""
        shown = await self.run(f"unzip -p {WHEELS}/*.whl '*.dist-info/METADATA' | grep -a '^Provides-Extra:'", 30.0)
        return re.findall(r"(?m)^Provides-Extra: *(\S+)", shown.output.decode("utf-8", "replace"))

    async def sources_only(self) -> None:
        """The checkout's own directories on the path, and the dependencies that its metadata declares."""
        for root in self.roots:
            place = WORKDIR if root == "." else f"{WORKDIR}/{root}"
            await self.run(
                f"echo {place} >> $({PYTHON} -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')/__editable__.pth",
                30.0,
            )
        lines = [
            line for line in python_goals.declared(self.checkout) if (r := requirements.parse(line)) and r.url is None
        ]
        if lines:
            await self.pip_each(lines)
        name = canonicalize_name(self.checkout.name).replace("-", "_")
        info = f"{VENV}/lib/python*/site-packages/{name}-{self.checkout.version or '0'}.dist-info"
        metadata = f"Metadata-Version: 2.1\\nName: {self.checkout.name}\\nVersion: {self.checkout.version or '0'}\\n"
        await self.run(
            f"d=$(echo {VENV}/lib/python*/site-packages)/$(basename {info}); mkdir -p $d; "
            f"printf {shlex.quote(metadata)} > $d/METADATA",
            30.0,
        )

    async def tests(self) -> Installed:
        """Install what the tests need, run them, and repair what the run misses. Raises InstallFailed."""
        paths = project.test_paths(self.checkout)
        wanted = list(dict.fromkeys(["pytest", *requirements.test_requirements(self.checkout)]))
        done = await self.pip(*wanted)
        if done.exit_code != 0:
            self.log("they do not fit together: one after the other, without their bounds where need be")
            await self.pip_each(wanted)
        if not paths:
            return self.problem(
                InstallFailed(
                    Reason.NO_TESTS, f"{self.checkout.name}: the checkout carries no tests",
                    remedy="A source distribution often leaves them out: take the git repository",
                )
            )  # fmt: skip
        installed, run = await self.measured(paths)
        for _ in range(ROUNDS):
            texts = [
                *run.file_errors.values(),
                *(c.message for c in run.cases.values() if c.status != "passed"),
                run.ending,
            ]
            names = [n for n in missing(texts, self.modules) if n not in self.tried]
            if not names:
                break
            self.tried |= set(names)
            self.log(f"missing, by the words of the errors: {', '.join(names)}")
            if not await self.pip_each(names):
                break
            installed, run = await self.measured(paths)
        if await self.services(run):
            installed, run = await self.measured(paths)
        installed, run = await self.best(installed, run, paths)
        counted = [c for c in run.cases.values() if c.status != "skipped"]
        self.log(
            f"suite: {sum(c.status == 'passed' for c in counted)} of {len(counted)} pass, {len(run.file_errors)} files not loaded"
        )
        if not run.cases:
            why = next(iter(run.file_errors.values()), run.ending)[-300:]
            reason = Reason.TIMEOUT if run.timed_out else diagnosis.of_tests(run.file_errors.values())
            reason = reason if run.file_errors or run.timed_out else Reason.NO_TESTS
            return self.problem(InstallFailed(reason, f"no test can be collected: {why}"), run)
        suite = next(goal for goal in self.goals() if goal.kind == "suite")
        if why := judge_suite(suite, run):
            failing = {
                i: c.message for i, c in run.cases.items() if c.status not in ("passed", "skipped")
            } | run.file_errors
            first = next(iter(failing.items()), ("", ""))
            reason = Reason.TIMEOUT if run.timed_out else diagnosis.of_tests(failing.values())
            return self.problem(InstallFailed(reason, f"{why}; {first[0]}: {first[1][-200:]}"), run)
        await self.run(
            # Lexers come with pytest and are most of its code; they and others' tests are compiled when they are used.
            f"{PYTHON} -m compileall -q -j 2 -x '/(lexers|tests?)/' --invalidation-mode unchecked-hash {VENV}/lib; "
            f"{TOOL_LINES}; rm -rf {WHEELS} {SOURCE}",
            INSTALL_SECONDS,
        )
        return dataclasses.replace(installed, run=run)

    async def services(self, run: TestRun) -> bool:
        """Set up what tests could not connect to; whether anything was."""
        wanted = local.asked_for([*run.file_errors.values(), *(c.message for c in run.cases.values())])
        if not wanted:
            return False
        self.log(f"services, by the words of the errors: {', '.join(service.name for service in wanted)}")
        found = await local.provide(self.box, wanted, self.checkout, python=PYTHON, log=self.log, env=self.variables)
        self.env |= found
        # Into the shell's state, PATH too: what a state holds goes over what a later call is given.
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.env.items())
        await self.box.exec(f"export {words}", timeout=PROBE_SECONDS)
        return bool(found)

    def problem(self, why: InstallFailed, run: TestRun | None = None) -> Installed:
        order = Order(files=(), ids=None, seconds=SUITE_SECONDS, python=PYTHON)
        return Installed(
            framework="pytest", order=order, env=self.env, python=PYTHON, source_roots=self.roots, modules=self.modules,
            run=run, problem=why,
        )  # fmt: skip

    def goals(self) -> list[Goal]:
        return python_goals.goals(self.checkout)

    async def measured(self, paths: tuple[str, ...], variant: tuple[str, ...] = ()) -> tuple[Installed, TestRun]:
        """A run of the whole suite as the environment would have it."""
        facts = await self.script("facts.py", "")
        arguments = (*python_goals.configuration(self.checkout, self.roots), *_plugins(facts), *variant)
        arguments += tuple(f"--deselect={test_id}" for test_id in self.hanging)
        order = Order(
            files=paths, ids=None, seconds=SUITE_SECONDS, budget=SUITE_BUDGET, python=PYTHON, arguments=arguments,
            conftest=any(p.rpartition("/")[2] == "conftest.py" for p in self.checkout.files), message_chars=1500,
        )  # fmt: skip
        run = await collect(self.box, PytestAdapter(), order)
        for _ in range(HANGING - len(self.hanging)):
            hanging = [i for i, case in run.cases.items() if case.status == "missing"] if run.timed_out else []
            if not hanging:
                break
            self.log(f"does not end and is left out: {hanging[0]}")
            without = dataclasses.replace(order, arguments=(*order.arguments, f"--deselect={hanging[0]}"))
            others = await collect(self.box, PytestAdapter(), without)
            if not others.cases:
                break
            self.hanging.append(hanging[0])
            order, run = without, others
        whole = len(run.cases) + run.left_out
        if run.cases and (run.left_out or run.timed_out):
            run.cases = {i: case for i, case in run.cases.items() if case.status != "missing"} or run.cases
            # The same ones in every repeat, and the files that do not load: they count as failing.
            files = files_of((*run.cases, *run.file_errors))
            order = dataclasses.replace(order, ids=tuple(run.cases), files=files, budget=0.0)
            self.log(f"a long suite: {len(run.cases)} of {whole} tests, drawn by their names, stand for the whole")
        self.log(
            f"suite: {len(run.cases)} tests reported, {len(run.file_errors)} files not loaded; {run.ending[-600:]}"
        )
        installed = Installed(
            framework="pytest", order=order, env=self.env, python=PYTHON, source_roots=self.roots, modules=self.modules,
            test_command="python -m pytest " + " ".join(map(shlex.quote, paths)),
            left_out=max(0, whole - len(run.cases)),
        )  # fmt: skip
        return installed, run

    async def best(self, installed: Installed, run: TestRun, paths: tuple[str, ...]) -> tuple[Installed, TestRun]:
        """The same, or a variant of pytest's set-up with which more tests pass."""
        for variant in (("-o", "filterwarnings="), ("-o", "python_files=*.py"), ("--import-mode=importlib",)):
            if _share(run) >= 0.95 or (run.cases and (run.timed_out or run.left_out)):
                break
            texts = " ".join([*run.file_errors.values(), *(c.message for c in run.cases.values())])
            if variant[1:] == ("filterwarnings=",) and "Warning" not in texts:
                continue
            if variant[1:] == ("python_files=*.py",) and run.cases:
                continue
            if variant[0].startswith("--import") and not run.file_errors and run.cases:
                continue
            self.log(f"another set-up of pytest: {' '.join(variant)}")
            other, second = await self.measured(paths, variant)
            if _share(second) > _share(run):
                installed, run = other, second
        return installed, run

    async def pip(self, *wanted: str) -> ExecResult:
        names = " ".join(w if w.startswith("$(") else shlex.quote(w) for w in wanted)
        return await self.run(
            f"uv pip install -q --python {VENV} -c /tmp/bounds.txt -b /tmp/build-bounds.txt {names} </dev/null",
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

    async def script(self, name: str, arguments: str) -> dict[str, Any]:
        """What a script of `inside/` prints, run by the environment's Python. Raises InstallFailed."""
        text = (INSIDE / name).read_text(encoding="utf-8")
        result = await self.box.exec(
            f"{PYTHON} -c {shlex.quote(text)} {arguments}", timeout=PROBE_SECONDS, keep_state=False
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


def _plugins(facts: dict[str, Any]) -> tuple[str, ...]:
    """Arguments that load the installed plugins by name, those left out that change how a run goes."""
    found: list[str] = []
    for dist, name in facts["plugins"]:
        if not any(word == name or f"pytest-{word}" == dist for word in QUIET_PLUGINS):
            found += ["-p", name]
    if any(name == "hypothesispytest" for _, name in facts["plugins"]):
        found.append("--hypothesis-seed=0")
        if facts["hypothesis_ci"]:
            found.append("--hypothesis-profile=ci")
    return tuple(found)


def _share(run: TestRun) -> float:
    counted = [c for c in run.cases.values() if c.status != "skipped"]
    whole = len(counted) + len(run.file_errors)
    return sum(c.status == "passed" for c in counted) / whole if whole else 0.0


__all__ = ["SHARE", "PythonRecipe"]
