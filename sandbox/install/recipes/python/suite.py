"""Run a package's tests, and add the missing modules, plugins and services that error messages name."""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import Any

from packaging.utils import canonicalize_name

from sandbox.backends.base import WORKDIR
from sandbox.grading.adapters.base import Order, TestRun, files_of
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.verifiers.suite import collect
from sandbox.install.recipes import diagnosis
from sandbox.install.recipes.base import Installed
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.install.recipes.goals import judge_suite
from sandbox.install.recipes.python import goals, project, requirements, setup
from sandbox.install.recipes.python.building import Package
from sandbox.install.recipes.python.repair import missing, outgrown
from sandbox.install.recipes.python.venv import INSTALL_SECONDS, PYTHON, VENV, Venv
from sandbox.install.recipes.services import local, table
from sandbox.install.recipes.system import SystemPackages

SUITE_SECONDS = 90.0
"""CPU time limit of one suite run; only a hanging test reaches it."""
SUITE_BUDGET = 30.0
"""A longer suite is replaced by a sample that takes about this long."""
HANGING = 2
"""Maximum number of hanging tests to exclude, one at a time."""
ROUNDS = 5
NEARLY_ALL = 0.95
QUIET_PLUGINS = ("xdist", "cov", "sugar", "randomly", "random-order", "html", "flake8", "black", "mypy", "pylint", "isort",
                 "rerunfailures", "forked", "picked", "testmon", "checkdocs", "enabler", "ruff")  # fmt: skip
"""Plugins that change how a run goes or what it prints; they are not loaded."""
VARIANTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("-o", "filterwarnings="), r"Warning"),
    (("-o", "asyncio_mode=auto"), r"async def functions are not natively supported|coroutine '.*' was never awaited"),
    (
        ("--import-mode=importlib",),
        r"import file mismatch|relative import|ImportError|ModuleNotFoundError|exit code [345]",
    ),
    (("--noconftest",), r"conftest"),
)
"""pytest arguments that help where the errors say such words."""
TOOL_LINES = "rm -rf ~/.cache ~/.local/share/uv ~/.local/state"
BUILD_LINES = "rm -rf /tmp/wheels /tmp/source /tmp/build-tools"


class Suite:
    """The tests of one attempt."""

    def __init__(self, venv: Venv, package: Package, system: SystemPackages) -> None:
        self.venv, self.package, self.system, self.log = venv, package, system, venv.log
        self.tried: set[str] = set()
        self.wanted: list[str] = []
        """Requirements of the tests."""
        self.imported = project.imported(venv.checkout)
        self.hanging: list[str] = []
        """Tests that did not end."""
        self.variant: tuple[str, ...] = ()
        """What was found to help, beside the checkout's own set-up of pytest."""

    async def tests(self) -> Installed:
        """Install what the tests need, run them, and repair what the run misses. Raises InstallFailed, SandboxError."""
        venv, checkout = self.venv, self.venv.checkout
        for path, text in project.example_files(checkout).items():
            self.log(f"no tests of its own: its examples become {path}")
            await venv.box.write(f"{WORKDIR}/{path}", text.encode())
        paths = project.test_paths(checkout)
        wanted = self.wanted = list(dict.fromkeys(["pytest", *requirements.test_requirements(checkout)]))
        if found := setup.variables(checkout):
            self.log(f"variables of its tests: {', '.join(f'{k}={v}' for k, v in found.items())}")
            venv.env |= found
            await venv.export()
            if "DJANGO_SETTINGS_MODULE" in found:
                wanted.append("pytest-django")
        done = await venv.pip(*wanted)
        if done.exit_code != 0:
            self.log("they do not fit together: one after the other, without their bounds where need be")
            await venv.pip_each(wanted)
        if not paths:
            return self.problem(
                InstallFailed(
                    Reason.NO_TESTS, f"{checkout.name}: the checkout carries no tests",
                    remedy="A source distribution often leaves them out: take the git repository",
                )
            )  # fmt: skip
        installed, run = await self.measured(paths)
        for _ in range(ROUNDS):
            if not await self.repaired(run):
                break
            installed, run = await self.measured(paths)
        if await self.services(run):
            installed, run = await self.measured(paths)
            if names := local.lacking(texts(run)):
                await local.name(venv.box, names, self.log)
                installed, run = await self.measured(paths)
        installed, run = await self.best(installed, run, paths)
        if own := [*self.variant, *(f"--deselect={test_id}" for test_id in self.hanging)]:
            self.venv.env["PYTEST_ADDOPTS"] = shlex.join(own)  # for whoever runs pytest there, goals among them
        counted = [c for c in run.cases.values() if c.status != "skipped"]
        self.log(
            f"suite: {sum(c.status == 'passed' for c in counted)} of {len(counted)} pass, {len(run.file_errors)} files not loaded"
        )
        if why := self.unsuited(run):
            return self.problem(why, run)
        await venv.run(
            # Lexers come with pytest and are most of its code; they and others' tests are compiled when they are used.
            f"{PYTHON} -m compileall -q -j 2 -x '/(lexers|tests?)/' --invalidation-mode checked-hash {VENV}/lib; "
            f"{TOOL_LINES}; {BUILD_LINES}",
            INSTALL_SECONDS,
        )
        return dataclasses.replace(installed, run=run)

    async def repaired(self, run: TestRun) -> bool:
        """Add what the words of the errors ask for; whether anything was. Raises InstallFailed, SandboxError."""
        said = texts(run)
        own = self.package.modules
        names = [n for n in missing(said, own, self.imported) if n not in self.tried]
        # What is not there at all has no part missing: it is added first.
        older = [n for n in outgrown(said, own) if f"older {n}" not in self.tried and n not in names]
        libraries = diagnosis.system_packages("\n".join(said))
        self.tried |= {*names, *(f"older {n}" for n in older)}
        some = False
        if names:
            self.log(f"missing, by the words of the errors: {', '.join(names)}")
            some = await self.venv.pip_each(names)
        for module in older:
            self.log(f"a part of {module} is missing: as it was when this was released")
            some = await self.venv.older(module) or some
        if self.broken(run) and "pytest" not in self.tried:
            self.tried.add("pytest")
            self.log("pytest itself does not start: the newest that fits of it and of what the tests pin beside it")
            pinned = [line.partition("==")[0] for line in self.wanted if "==" in line]
            some = (await self.venv.pip("pytest", *pinned, options="--upgrade")).exit_code == 0 or some
        return await self.system.provide(self.venv, libraries) or some

    @staticmethod
    def broken(run: TestRun) -> bool:
        """Whether pytest ended before it came to collect: with 5 it ran and found nothing."""
        return not (run.cases or run.file_errors or run.timed_out or "exit code 5" in run.ending)

    def unsuited(self, run: TestRun) -> InstallFailed | None:
        """Why this run is not that of an environment."""
        if not run.cases:
            why = next(iter(run.file_errors.values()), run.ending)[-300:]
            reason = Reason.TIMEOUT if run.timed_out else diagnosis.of_tests(run.file_errors.values())
            if self.broken(run):
                reason = diagnosis.of_build(run.ending)
            elif "exit code 5" in run.ending and not run.file_errors:
                reason = Reason.NO_TESTS
            return InstallFailed(reason, f"no test can be collected: {why}")
        suite = next(goal for goal in goals.goals(self.venv.checkout) if goal.kind == "suite")
        if not (why := judge_suite(suite, run)):
            return None
        failing = {
            i: c.message for i, c in run.cases.items() if c.status not in ("passed", "skipped")
        } | run.file_errors
        first = next(iter(failing.items()), ("", ""))
        reason = Reason.TIMEOUT if run.timed_out else diagnosis.of_tests(failing.values())
        return InstallFailed(
            reason, f"{why}; {first[0]}: {first[1][-200:]}", remedy=table.remedy(reason, failing.values())
        )

    async def services(self, run: TestRun) -> bool:
        """Set up what tests could not connect to; whether anything was."""
        said = [*run.file_errors.values(), *(c.message for c in run.cases.values())]
        wanted = table.asked_for(said)
        if not wanted:
            return False
        self.log(f"services, by the words of the errors: {', '.join(service.name for service in wanted)}")
        found = await local.provide(self.venv, self.system, wanted, said, python=PYTHON)
        self.venv.env |= found or {}
        await self.venv.export()
        return found is not None

    def problem(self, why: InstallFailed, run: TestRun | None = None) -> Installed:
        order = Order(files=(), ids=None, seconds=SUITE_SECONDS, python=PYTHON)
        return Installed(
            framework="pytest", order=order, env=self.venv.env, python=PYTHON, source_roots=self.package.roots,
            modules=self.package.modules,
            run=run, problem=why,
        )  # fmt: skip

    async def measured(self, paths: tuple[str, ...], variant: tuple[str, ...] = ()) -> tuple[Installed, TestRun]:
        """A run of the whole suite as the environment would have it."""
        facts = await self.venv.script("facts.py", "")
        plugins = plugins_to_load(facts, own := canonicalize_name(self.venv.checkout.name))
        if any(canonicalize_name(dist) == own for dist, _, _ in facts["plugins"]):
            self.venv.env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": plugin_modules(facts)}
            await self.venv.export()
        arguments = (*goals.configuration(self.venv.checkout, self.package.roots), *plugins, *variant)
        arguments += tuple(f"--deselect={test_id}" for test_id in self.hanging)
        order = Order(
            files=paths, ids=None, seconds=SUITE_SECONDS, budget=SUITE_BUDGET, python=PYTHON, arguments=arguments,
            conftest=any(p.rpartition("/")[2] == "conftest.py" for p in self.venv.checkout.files), message_chars=1500,
        )  # fmt: skip
        run = await collect(self.venv.box, PytestAdapter(), order)
        for _ in range(HANGING - len(self.hanging)):
            hanging = [i for i, case in run.cases.items() if case.status == "missing"] if run.timed_out else []
            if not hanging:
                break
            self.log(f"does not end and is left out: {hanging[0]}")
            without = dataclasses.replace(order, arguments=(*order.arguments, f"--deselect={hanging[0]}"))
            others = await collect(self.venv.box, PytestAdapter(), without)
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
            framework="pytest", order=order, env=self.venv.env, python=PYTHON, source_roots=self.package.roots,
            modules=self.package.modules,
            test_command="python -m pytest " + " ".join(map(shlex.quote, paths)),
            left_out=max(0, whole - len(run.cases)),
        )  # fmt: skip
        return installed, run

    async def best(self, installed: Installed, run: TestRun, paths: tuple[str, ...]) -> tuple[Installed, TestRun]:
        """The same, or with a variant of pytest's set-up with which more tests pass: it is then the environment's own."""
        for variant, sign in VARIANTS:
            if share(run) >= NEARLY_ALL or (run.cases and (run.timed_out or run.left_out)):
                break
            if not re.search(sign, "\n".join(texts(run))) or (variant[0] == "--noconftest" and run.cases):
                continue
            self.log(f"another set-up of pytest: {' '.join(variant)}")
            other, second = await self.measured(paths, variant)
            if share(second) > share(run):
                installed, run, self.variant = other, second, variant
        return installed, run


def plugin_modules(facts: dict[str, Any]) -> str:
    """For a checkout that is a plugin itself: its tests run pytest, which is to have the same plugins as their own run."""
    return ",".join(dict.fromkeys(module for dist, name, module in facts["plugins"] if not _quiet(dist, name)))


def _quiet(dist: str, name: str) -> bool:
    return any(word == name or f"pytest-{word}" == dist for word in QUIET_PLUGINS)


def plugins_to_load(facts: dict[str, Any], own: str) -> tuple[str, ...]:
    """Arguments that load the installed plugins by name, those left out that change how a run goes."""
    found: list[str] = []
    if not any(canonicalize_name(dist) == own for dist, _, _ in facts["plugins"]):
        for dist, name, _ in facts["plugins"]:
            found += [] if _quiet(dist, name) else ["-p", name]
    if any(name == "hypothesispytest" for _, name, _ in facts["plugins"]):
        found.append("--hypothesis-seed=0")
        if facts["hypothesis_ci"]:
            found.append("--hypothesis-profile=ci")
    return tuple(found)


def share(run: TestRun) -> float:
    counted = [c for c in run.cases.values() if c.status != "skipped"]
    whole = len(counted) + len(run.file_errors)
    return sum(c.status == "passed" for c in counted) / whole if whole else 0.0


def texts(run: TestRun) -> list[str]:
    """All that a run says about what went wrong."""
    failed = (case.message for case in run.cases.values() if case.status != "passed")
    return [*run.file_errors.values(), *failed, run.ending]
