"""Shared parts of the recipes of compiled and packaged languages: commands and a suite measurement in one sandbox."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from sandbox.backends.base import ExecResult, Sandbox
from sandbox.grading.adapters import ADAPTERS
from sandbox.grading.adapters.base import Order, TestRun
from sandbox.grading.verifiers.suite import collect
from sandbox.install.recipes import diagnosis
from sandbox.install.recipes.base import Installed, Log, build_failure, step
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.install.recipes.goals import Expect, Goal, judge_suite
from sandbox.repositories.checkout import Checkout

PROBE_SECONDS = 60.0
INSTALL_SECONDS = 600.0
BUILD_SECONDS = 900.0
SUITE_SECONDS = 300.0
"""Processor time of one run of a suite; compiling it is in it."""


@dataclass
class Attempt:
    """One attempt at one checkout, in its sandbox."""

    box: Sandbox
    checkout: Checkout
    number: int
    log: Log
    env: dict[str, str] = field(default_factory=dict)
    """Variables of the finished environment; commands of the attempt have them too."""

    async def begin(self) -> None:
        if self.env:
            words = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.env.items())
            await self.box.exec(f"export {words}", timeout=PROBE_SECONDS)

    async def run(self, command: str, seconds: float = INSTALL_SECONDS) -> ExecResult:
        """In the checkout's folder; nothing can be asked for at a prompt."""
        return await step(self.box, f"{command} </dev/null", self.log, seconds=seconds, env={"CI": "1"})

    async def must(self, command: str, what: str, seconds: float = INSTALL_SECONDS) -> ExecResult:
        """Raises InstallFailed when the command fails."""
        done = await self.run(command, seconds)
        if done.exit_code != 0:
            raise build_failure(done, what)
        return done

    async def lines(self, command: str, what: str, seconds: float = INSTALL_SECONDS) -> list[str]:
        """What a command prints. Raises InstallFailed."""
        done = await self.must(command, what, seconds)
        return [line.strip() for line in done.output.decode("utf-8", "replace").splitlines() if line.strip()]

    async def program(self, name: str, package: str) -> None:
        """Raises InstallFailed when this machine has no such program."""
        found = await self.run(f"command -v {shlex.quote(name)}", PROBE_SECONDS)
        if found.exit_code != 0:
            raise InstallFailed(
                Reason.SYSTEM_PACKAGE, f"{self.checkout.name} needs {name}, which this machine does not have",
                remedy=diagnosis.remedy(package),
            )  # fmt: skip

    async def suite(
        self, framework: str, order: Order, goal: Goal, *, test_command: str, packages: tuple[str, ...] = (),
        python: str = "python3", source_roots: tuple[str, ...] = (".",), modules: tuple[str, ...] = (),
    ) -> Installed:  # fmt: skip
        """Run the whole suite once; what it lacks is the problem of what is returned. Raises SandboxError."""
        run = await collect(self.box, ADAPTERS[framework], order)
        self.log(f"suite: {len(run.cases)} tests reported, {len(run.file_errors)} not loaded; {run.ending[-600:]}")
        return Installed(
            framework=framework, order=order, env=dict(self.env), test_command=test_command, packages=packages, run=run,
            problem=self._problem(run, goal), python=python, source_roots=source_roots, modules=modules,
        )  # fmt: skip

    def nothing(self, framework: str, why: InstallFailed) -> Installed:
        """Installed, but there is nothing to run."""
        order = Order(files=(), ids=None, seconds=SUITE_SECONDS)
        return Installed(framework=framework, order=order, env=dict(self.env), problem=why)

    def _problem(self, run: TestRun, goal: Goal) -> InstallFailed | None:
        if run.timed_out:
            return InstallFailed(Reason.TIMEOUT, f"the suite does not end in {SUITE_SECONDS:g} s of processor time")
        if not run.cases:
            why = next(iter(run.file_errors.values()), run.ending)[-300:]
            reason = diagnosis.of_build(why) if run.file_errors else Reason.NO_TESTS
            return InstallFailed(reason, f"no test could be run: {why}")
        if not (why := judge_suite(goal, run)):
            return None
        failing = {
            i: c.message for i, c in run.cases.items() if c.status not in ("passed", "skipped")
        } | run.file_errors
        first = next(iter(failing.items()), ("", ""))
        return InstallFailed(diagnosis.of_tests(failing.values()), f"{why}; {first[0]}: {first[1][-200:]}")


def no_tests(checkout: Checkout, language: str) -> InstallFailed:
    return InstallFailed(
        Reason.NO_TESTS, f"{checkout.name}: the checkout carries no {language} tests",
        remedy="Take a revision that has tests",
    )  # fmt: skip


def works(kind: str, command: str, description: str, pattern: str = "", **fields: object) -> Goal:
    """A goal whose command succeeds (unless `exit_codes` says otherwise) and prints `pattern`."""
    expect = {"pattern": pattern} | {k: v for k, v in fields.items() if k in ("exit_codes", "passed_share")}
    rest = {k: v for k, v in fields.items() if k not in expect}
    return Goal.model_validate(
        {"kind": kind, "command": command, "description": description, "expect": Expect.model_validate(expect), **rest}
    )
