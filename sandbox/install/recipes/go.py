"""The Go recipe: modules of the checkout's own go.mod, downloaded once, built and tested without network."""

from __future__ import annotations

import hashlib
import re
import shlex

from sandbox.backends.base import HOME, Sandbox
from sandbox.grading.adapters.base import Order
from sandbox.install.recipes.base import Installed, Log
from sandbox.install.recipes.goals import COUNT, SHARE, Goal
from sandbox.install.recipes.toolchain import BUILD_SECONDS, SUITE_SECONDS, Attempt, no_tests, works
from sandbox.network.policy import GoRules, RegistryPolicy
from sandbox.repositories.checkout import Checkout

ENV = {
    "GOFLAGS": "-mod=mod -modcacherw", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOPATH": f"{HOME}/go",
    "GOCACHE": f"{HOME}/go/cache", "GOTELEMETRY": "off",
}  # fmt: skip
"""The build cache lies beside the modules, so that dependencies are not compiled again in every sandbox."""
SKIPPED = ("testdata", "vendor", "node_modules")
OTHERS = "{{if and (not .ForTest) (or .Standard (and .Module (not .Module.Main)))}}{{.ImportPath}}{{end}}"
"""Template for `go list -deps` that selects packages outside the checkout."""
PACKAGES_TRIED = 3


class GoRecipe:
    language = "go"
    registries = RegistryPolicy(python=None, go=GoRules())

    def applies(self, checkout: Checkout) -> bool:
        return "go.mod" in checkout.files

    def goals(self, checkout: Checkout) -> list[Goal]:
        module = module_of(checkout)
        folders = test_folders(checkout)
        found = [
            works("toolchain", "go version", "the version of Go", r"go version go\d"),
            works("version", "go list -m", "the module's path", re.escape(module)),
            works("run", "go list ./...", "the module's packages", re.escape(module)),
            works("run", "go build ./... && echo built", "every package compiles", "built", seconds=BUILD_SECONDS),
        ]
        if folders:
            found.append(suite_goal())
            quoted = " ".join(map(_place, folders))
            found.append(
                works(
                    "tests",
                    f"go test -list . {quoted}",
                    "the names of tests",
                    r"(?m)^(Test|Example)",
                    seconds=BUILD_SECONDS,
                )
            )
        tried = sorted(folders, key=lambda folder: hashlib.sha256(f"{checkout.digest}{folder}".encode()).digest())
        for folder in tried[:PACKAGES_TRIED]:
            found.append(
                works(
                    "tests",
                    f"go test -vet=off -v -count=1 {_place(folder)}",
                    "tests of one package run and pass",
                    r"(?m)^\s*--- PASS",
                    exit_codes=(0, 1),
                    seconds=BUILD_SECONDS,
                )
            )
        fill = [
            works("toolchain", "go env GOMOD", "the checkout's go.mod", r"/repo/go\.mod"),
            works("run", "go list -deps ./... | tail -1", "the last package of the build", r"\w"),
            works("toolchain", "go env GOROOT", "where Go is", "/"),
            works("run", "head -1 go.mod", "the module line", "module|//"),
            works("toolchain", "git --version", "git's version", r"git version \d"),
            works("run", "go list -f '{{.Dir}}' ./... | head -1", "the folder of a package", "/repo"),
        ]
        return (found + fill)[:COUNT]

    async def install(self, box: Sandbox, checkout: Checkout, *, attempt: int, log: Log) -> Installed:
        work = Attempt(box, checkout, attempt, log, dict(ENV))
        await work.begin()
        await work.program("go", "golang-go")
        if attempt > 1:
            await work.must("go mod tidy -e", "completing go.mod failed")
        await work.must("go mod download", "downloading modules failed")
        # Once with the network: what go.sum misses of the tests' own dependencies is added here.
        await work.must(
            "go build ./... && go test -vet=off -run '^$' -count=1 ./...", "building it failed", BUILD_SECONDS
        )
        modules = await work.lines(
            "go list -m -f '{{if not .Main}}{{.Path}}=={{.Version}}{{end}}' all", "listing modules failed"
        )
        folders = test_folders(checkout)
        if not folders:
            return work.nothing("go", no_tests(checkout, "Go"))
        order = Order(files=tuple(folders), ids=None, seconds=SUITE_SECONDS, message_chars=1500)
        return await work.suite("go", order, suite_goal(), test_command="go test ./...", packages=tuple(modules))

    async def clean(self, box: Sandbox, checkout: Checkout, installed: Installed, log: Log) -> None:
        """The cache keeps what the checkout did not write: its own compiled packages would be answers."""
        work = Attempt(box, checkout, 1, log)
        await work.must(
            f"go list -deps -test -f {shlex.quote(OTHERS)} ./... | sort -u > /tmp/others && go clean -cache && "
            "xargs -r go build < /tmp/others && rm -rf ~/go/pkg/mod/cache/vcs /tmp/others",
            "compiling the dependencies failed",
            BUILD_SECONDS,
        )


def module_of(checkout: Checkout) -> str:
    found = re.search(r"(?m)^module\s+\"?([^\s\"]+)", checkout.text("go.mod"))
    return found[1] if found else checkout.name


def test_folders(checkout: Checkout) -> list[str]:
    """Directories of packages that have tests, `.` for the top; those of other modules below are not among them."""
    modules = {path.rpartition("/")[0] for path in checkout.files if path.endswith("/go.mod")}
    found = set()
    for path in checkout.files:
        folder, _, name = path.rpartition("/")
        parts = folder.split("/")
        hidden = any(part in SKIPPED or part.startswith(("_", ".")) for part in parts if part)
        if name.endswith("_test.go") and not hidden and not any(f"{folder}/".startswith(f"{m}/") for m in modules):
            found.add(folder or ".")
    return sorted(found)


def suite_goal() -> Goal:
    return works(
        "suite", "go test -vet=off ./...", f"the whole suite ends and at least {SHARE:.0%} of its tests pass",
        exit_codes=(0, 1), passed_share=SHARE, seconds=1800.0,
    )  # fmt: skip


def _place(folder: str) -> str:
    return "." if folder == "." else shlex.quote(f"./{folder}")
