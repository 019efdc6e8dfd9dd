"""The Rust recipe: crates vendored beside the checkout, dependencies compiled once, everything after without network."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import Any

from sandbox.backends.base import HOME, Sandbox
from sandbox.grading.adapters.base import Order
from sandbox.install.recipes.base import Installed, Log
from sandbox.install.recipes.goals import COUNT, SHARE, Goal
from sandbox.install.recipes.toolchain import BUILD_SECONDS, SUITE_SECONDS, Attempt, no_tests, works
from sandbox.network.policy import CargoRules, RegistryPolicy
from sandbox.repositories.checkout import Checkout, parse_toml

ENV = {"CARGO_TARGET_DIR": f"{HOME}/.cargo/target", "CARGO_INCREMENTAL": "0", "CARGO_TERM_COLOR": "never"}
"""Compiled dependencies lie outside the checkout, so that its history and patches hold sources only."""
SETTINGS = """[source.crates-io]
replace-with = "vendored"

[source.vendored]
directory = "{home}/.cargo/vendor"

[net]
offline = true
"""
TEST = re.compile(r"(?m)^\s*#\[(?:\w+::)*test\b")
FILES_TRIED = 3


class CargoRecipe:
    language = "cargo"
    registries = RegistryPolicy(python=None, cargo=CargoRules())

    def applies(self, checkout: Checkout) -> bool:
        return "Cargo.toml" in checkout.files and "pyproject.toml" not in checkout.files

    def goals(self, checkout: Checkout) -> list[Goal]:
        name = package_of(checkout)
        files = test_files(checkout)
        found = [
            works("toolchain", "cargo --version", "the version of cargo", r"cargo \d"),
            works("toolchain", "rustc --version", "the version of rustc", r"rustc \d"),
            works(
                "version",
                "cargo metadata --offline --format-version 1 --no-deps",
                "the package by name",
                re.escape(name),
            ),
            works("run", "cargo build --offline && echo built", "it compiles", "built", seconds=BUILD_SECONDS),
            works("run", "cargo tree --offline | head -1", "the package and its version", r"v\d"),
        ]
        if files:
            found.append(suite_goal())
            found.append(
                works(
                    "tests",
                    "cargo test --offline -- --list",
                    "the names of tests",
                    r"(?m): test$",
                    seconds=BUILD_SECONDS,
                )
            )
        for path in [p for p in files if p.startswith("tests/")][:FILES_TRIED]:
            target = PurePosixPath(path).parent.name if path.endswith("/main.rs") else PurePosixPath(path).stem
            found.append(
                works(
                    "tests",
                    f"cargo test --offline --no-fail-fast --test {target}",
                    "tests of one target run and pass",
                    r"\.\.\. ok",
                    exit_codes=(0, 101),
                    seconds=BUILD_SECONDS,
                )
            )
        fill = [
            works("run", "ls Cargo.toml", "the manifest", "Cargo.toml"),
            works("run", "cargo locate-project --offline", "the manifest's path", "/repo/Cargo.toml"),
            works("toolchain", "git --version", "git's version", r"git version \d"),
            works(
                "run",
                "cargo pkgid --offline 2>&1 || cargo metadata --offline --no-deps",
                "how cargo names it",
                re.escape(name),
            ),
            works("run", "cargo check --offline && echo checked", "it type-checks", "checked", seconds=BUILD_SECONDS),
        ]
        return (found + fill)[:COUNT]

    async def install(self, box: Sandbox, checkout: Checkout, *, attempt: int, log: Log) -> Installed:
        work = Attempt(box, checkout, attempt, log, dict(ENV))
        await work.begin()
        await work.program("cargo", "cargo")
        if needs_crates(checkout):
            if attempt > 1:
                await work.must("cargo update", "choosing versions failed")
            await work.must("cargo vendor --versioned-dirs ~/.cargo/vendor >/dev/null", "fetching crates failed")
        else:
            await work.must("mkdir -p ~/.cargo/vendor", "making a folder failed")
        await box.write(f"{HOME}/.cargo/config.toml", SETTINGS.format(home=HOME).encode())
        files = test_files(checkout)
        if not files:
            return work.nothing("cargo", no_tests(checkout, "Rust"))
        await work.must("cargo test --offline --no-run", "building it failed", BUILD_SECONDS)
        crates = await work.lines(
            "cargo tree --offline --prefix none --format '{p}' | sort -u", "listing crates failed"
        )
        packages = tuple(re.sub(r" v(\S+).*", r"==\1", line) for line in crates if "(/" not in line)
        order = Order(files=targets(checkout, files), ids=None, seconds=SUITE_SECONDS, message_chars=1500)
        return await work.suite("cargo", order, suite_goal(), test_command="cargo test", packages=packages)

    async def clean(self, box: Sandbox, checkout: Checkout, installed: Installed, log: Log) -> None:
        """Compiled dependencies stay; what was compiled of the checkout itself would give answers away."""
        work = Attempt(box, checkout, 1, log)
        names = await work.lines(
            'cargo metadata --offline --no-deps --format-version 1 | grep -o \'"name":"[^"]*","version"\' | cut -d\'"\' -f4',
            "listing its packages failed",
        )
        own = " ".join(f"-p {name}" for name in dict.fromkeys(names) if re.fullmatch(r"[\w-]+", name))
        await work.must(
            f"cargo clean --offline {own} && rm -rf ~/.cargo/registry ~/.cargo/.package-cache", "cleaning up failed"
        )


def package_of(checkout: Checkout) -> str:
    package = parse_toml(checkout.text("Cargo.toml")).get("package")
    name = package.get("name") if isinstance(package, dict) else None
    return name if isinstance(name, str) else checkout.name


def needs_crates(checkout: Checkout) -> bool:
    """Whether any manifest of the checkout names a dependency that is not a folder of it."""
    manifests = [parse_toml(checkout.text(p)) for p in checkout.files if p.rpartition("/")[2] == "Cargo.toml"]
    return any(_names_crates(manifest) for manifest in manifests)


def _names_crates(manifest: dict[str, Any]) -> bool:
    targets = manifest.get("target")
    tables = [manifest, manifest.get("workspace"), *(targets.values() if isinstance(targets, dict) else ())]
    for table in filter(lambda one: isinstance(one, dict), tables):
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            wanted = table.get(kind) if isinstance(table, dict) else None
            for one in wanted.values() if isinstance(wanted, dict) else ():
                if not (isinstance(one, dict) and ("path" in one or one.get("workspace"))):
                    return True
    return False


def test_files(checkout: Checkout) -> list[str]:
    """Rust files with tests, those of the examples and benches apart; by content, so that three of them can be drawn."""
    found = [
        path for path in checkout.files
        if path.endswith(".rs") and not path.startswith(("examples/", "benches/")) and TEST.search(checkout.text(path))
    ]  # fmt: skip
    return sorted(found, key=lambda path: hashlib.sha256(f"{checkout.digest}{path}".encode()).digest())


def targets(checkout: Checkout, files: list[str]) -> tuple[str, ...]:
    """Root files of the test targets that these files belong to, of the top package."""
    roots = set()
    for path in files:
        parts = path.split("/")
        if parts[0] == "tests" and len(parts) == 2:
            roots.add(path)
        elif parts[0] == "tests":
            roots.add(f"tests/{parts[1]}/main.rs")
        elif path.startswith("src/bin/") or path == "src/main.rs" or "src/lib.rs" not in checkout.files:
            roots.add("src/main.rs")
        else:
            roots.add("src/lib.rs")
    return tuple(sorted(roots))


def suite_goal() -> Goal:
    return works(
        "suite", "cargo test --offline --no-fail-fast", f"the whole suite ends and at least {SHARE:.0%} of its tests pass",
        exit_codes=(0, 101), passed_share=SHARE, seconds=1800.0,
    )  # fmt: skip
