"""The npm recipe: install the packages of the lock file or manifest; supports jest, vitest, mocha and node's runner.

`node_modules` lies in the home directory and the checkout links to it. node finds it there, and neither the checkout's
history nor a patch contains third-party packages.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

from sandbox.backends.base import Sandbox
from sandbox.grading.adapters.base import Order
from sandbox.install.recipes.base import Installed, Log
from sandbox.install.recipes.goals import COUNT, SHARE, Goal
from sandbox.install.recipes.npm import project
from sandbox.install.recipes.npm.project import Framework
from sandbox.install.recipes.toolchain import BUILD_SECONDS, SUITE_SECONDS, Attempt, no_tests, works
from sandbox.network.policy import NpmRules, RegistryPolicy
from sandbox.repositories.checkout import Checkout

REPORT = ".mocha-report.xml"
FILES_TRIED = 3
ADAPTERS: dict[Framework, str] = {"vitest": "vitest", "jest": "jest", "mocha": "junit", "node": "node"}
PACKAGES = (Path(__file__).parent / "inside" / "packages.js").read_text(encoding="utf-8")


class NpmRecipe:
    language = "npm"
    registries = RegistryPolicy(python=None, npm=NpmRules())

    def applies(self, checkout: Checkout) -> bool:
        return "package.json" in checkout.files and not {"pyproject.toml", "setup.py", "setup.cfg"} & set(
            checkout.files
        )

    def goals(self, checkout: Checkout) -> list[Goal]:
        kind = project.framework(checkout)
        files = project.test_files(checkout, kind) if kind else ()
        found = [
            works("toolchain", "node --version", "the version of node", r"v\d+\."),
            works("version", "node -p \"require('./package.json').name\"", "the package's name", r"\w"),
        ]
        if main := project.entry(checkout):
            code = f"import('./{main}').then(m => console.log('loaded', typeof m))"
            found.append(works("import", f"node -e {shlex.quote(code)}", "the package's entry loads", "loaded object"))
        if kind and files:
            found.append(suite_goal(kind))
            tried = sorted(files, key=lambda path: hashlib.sha256(f"{checkout.digest}{path}".encode()).digest())
            found += [_file_goal(kind, path) for path in tried[:FILES_TRIED]]
            if kind != "node":
                found.append(
                    works("toolchain", f"node_modules/.bin/{kind} --version", f"the version of {kind}", r"\d+\.\d+")
                )
        for name in sorted(project.dependencies(checkout))[:2]:
            found.append(
                works("import", f"ls node_modules/{shlex.quote(name)}/package.json", "a dependency", "package.json")
            )
        for path in project.plain_files(checkout)[:2]:
            found.append(
                works("run", f"node --check {shlex.quote(path)} && echo parsed", "a source file parses", "parsed")
            )
        fill = [
            works("toolchain", "npm --version", "the version of npm", r"\d+\.\d+"),
            works("run", "ls package.json", "the manifest", "package.json"),
            works("toolchain", "git --version", "git's version", r"git version \d"),
            works("toolchain", "command -v node", "where node is", "/node"),
            works("run", "node -p process.version", "the version of node", r"v\d"),
            works("run", "node -p \"require('path').resolve('.')\"", "the checkout's folder", "/repo"),
            works("run", "node -e \"console.log('ran', 1 + 1)\"", "node runs", "ran 2"),
            works("run", "ls", "the checkout's files", r"\w"),
        ]
        return (found + fill)[:COUNT]

    async def install(self, box: Sandbox, checkout: Checkout, *, attempt: int, log: Log) -> Installed:
        work = Attempt(box, checkout, attempt, log)
        await work.begin()
        await work.program("node", "nodejs")
        await work.program("npm", "npm")
        kind = project.framework(checkout)
        if kind is None:
            return work.nothing("node", no_tests(checkout, "JavaScript"))
        await work.must(_command(checkout, attempt), "installing its packages failed")
        await self._build(work, checkout)
        listed = await work.lines(f"node -e {shlex.quote(PACKAGES)}", "listing packages failed")
        packages = tuple(str(name) for name in json.loads(listed[-1]))
        await work.must(
            "if [ -d node_modules ] && [ ! -L node_modules ]; then rm -rf ~/node_modules node_modules/.cache && "
            "mv node_modules ~/node_modules && ln -s ../node_modules node_modules; fi",
            "moving node_modules failed",
        )
        files = project.test_files(checkout, kind)
        if not files:
            return work.nothing(ADAPTERS[kind], no_tests(checkout, kind))
        return await work.suite(
            ADAPTERS[kind], order_of(kind, files), suite_goal(kind), test_command="npm test", packages=packages
        )

    async def clean(self, box: Sandbox, checkout: Checkout, installed: Installed, log: Log) -> None:
        """Caches of test runners hold transformed sources."""
        await Attempt(box, checkout, 1, log).must(
            "rm -rf ~/node_modules/.cache ~/node_modules/.vite", "cleaning up failed"
        )

    async def _build(self, work: Attempt, checkout: Checkout) -> None:
        """What the package's entry is made by, where the checkout has it only as sources."""
        if "build" in project.scripts(checkout) and not project.entry(checkout):
            built = await work.run("npm run build", BUILD_SECONDS)
            if built.exit_code != 0:
                work.log("building it failed: its tests may run without")


def _command(checkout: Checkout, attempt: int) -> str:
    """How packages are installed: exactly what is locked, then what fits, then without their own set-up scripts."""
    quiet = "--no-audit --no-fund --no-progress --loglevel=error"
    locked = {"package-lock.json", "npm-shrinkwrap.json"} & set(checkout.files)
    if attempt == 1 and locked:
        return f"npm ci {quiet}"
    extra = ("", "", " --legacy-peer-deps", " --legacy-peer-deps --ignore-scripts", " --force --ignore-scripts")[
        attempt - 1
    ]
    return f"npm install --no-save --no-package-lock {quiet}{extra}"


def order_of(kind: Framework, files: tuple[str, ...]) -> Order:
    if kind != "mocha":
        return Order(files=files, ids=None, seconds=SUITE_SECONDS, message_chars=1500)
    words = ("node_modules/.bin/mocha", "--reporter", "xunit", "--reporter-option", f"output={REPORT}")
    return Order(
        files=files, ids=None, seconds=SUITE_SECONDS, message_chars=1500, report=REPORT, arguments=(*words, *files)
    )


def suite_goal(kind: Framework) -> Goal:
    return works(
        "suite", "npm test", f"the whole suite of {kind} ends and at least {SHARE:.0%} of its tests pass",
        exit_codes=(0, 1), passed_share=SHARE, seconds=1800.0,
    )  # fmt: skip


def _file_goal(kind: Framework, path: str) -> Goal:
    quoted = shlex.quote(path)
    command, pattern = {
        "vitest": (f"node_modules/.bin/vitest run {quoted}", r"Tests\s+.*\b[1-9]\d* passed"),
        "jest": (f"node_modules/.bin/jest --ci {quoted}", r"Tests:\s+.*\b[1-9]\d* passed"),
        "mocha": (f"node_modules/.bin/mocha {quoted}", r"\b[1-9]\d* passing"),
        "node": (f"node --test {quoted}", r"(?m)^\S* ?pass [1-9]"),
    }[kind]
    codes = (0, *range(1, 100)) if kind == "mocha" else (0, 1)
    return works("tests", command, "tests of one file run and pass", pattern, exit_codes=codes, seconds=300.0)
