"""Environments built from real packages: a pinned source distribution, pytest beside it, and its tests measured.

The package's own tests are run several times in fresh sandboxes without network; only those that pass every time
are ever used by a task.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from sandbox.backends.base import HOME, WORKDIR, Backend, EnvSpec, Limits
from sandbox.errors import PackageError, PackageWithoutTests
from sandbox.grading.adapters.base import Order, TestRun
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.verifiers.suite import collect
from sandbox.repositories import pins
from sandbox.repositories.history import TreeFile
from sandbox.tasks.environments import EnvironmentStore, Manifest
from sandbox.tasks.leaks import scan_layers
from sandbox.tasks.spec import BuiltEnvironment, InlineEnvironment

REPEATS = 2
SUITE_SECONDS = 120.0
BUILD_LIMITS = Limits(call_seconds=600.0, life_seconds=1200.0)
FORMAT = 4
"""Changed whenever an environment built by this file would come out differently."""
PROBE = (
    "import os, sys, importlib.util as u; print(os.path.realpath(sys.executable)); print('%d.%d' % sys.version_info[:2]);"
    "print(' '.join(n for n in sys.argv[1:] if u.find_spec(n)))"
)
T = TypeVar("T")


class BuiltPackage(BaseModel):
    """A package as an environment, with what its tests cover."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    version: str
    environment: BuiltEnvironment
    source_roots: tuple[str, ...]
    tests: dict[str, float]
    """Ids of the stable tests → seconds."""
    flaky: tuple[str, ...] = ()
    covered: dict[str, tuple[str, ...]]
    """`path:first line` of a function → stable tests that enter it."""
    pytest_args: tuple[str, ...] = ()
    """Further arguments of every run of its tests: `Order.arguments`, `PytestVerifier.pytest_args`."""


@dataclass(frozen=True, slots=True)
class Base:
    """The Python that sandboxes have."""

    executable: str
    version: str
    present: frozenset[str]
    """Modules, of those asked for, that it can import without any environment."""


async def build_packages(
    store: EnvironmentStore, packages: Sequence[str], *, backend: Backend, cache: Path | None = None
) -> list[BuiltPackage]:
    """Build an environment of each named package of the lock, or take it from the store.

    Raises PackageUnavailable (no network and not cached), PackageWithoutTests, PackageError, SandboxError.
    """
    locked = pins.read_lock()
    unknown = [name for name in packages if name not in locked]
    if unknown:
        raise PackageError(f"not in the lock: {', '.join(unknown)}", remedy=f"Known are {', '.join(locked)}")
    cache = cache or store.root / "downloads"
    return [await _build(store, locked[name], backend, cache) for name in packages]


def build_package_environments(store: EnvironmentStore, packages: Sequence[str]) -> list[BuiltPackage]:
    """`build_packages` with a backend of its own, for callers outside an event loop."""
    return with_backend(lambda backend: build_packages(store, packages, backend=backend))


async def build_archive(
    store: EnvironmentStore, archive: Path, pin: pins.Pin, *, backend: Backend, cache: Path
) -> BuiltPackage:
    """Build an environment from a source distribution on disk; `cache` holds the test tools."""
    files = pins.unpack(archive)
    roots = source_roots(files)
    base = await _probe(store, backend, top_level_modules(files, roots))
    if base.present:
        raise PackageError(
            f"{pin.name}: this machine's own Python already has {', '.join(sorted(base.present))}",
            remedy="Its source would give every fix away; build on a machine without it",
        )
    tree = store.working_directory()
    try:
        _lay_out(tree, pin, files, roots, base, pins.metadata(archive), pins.toolchain(cache, base.executable))
        manifest = Manifest(
            name=pin.name, version=pin.version, env=_variables(), python=f"{HOME}/.venv/bin/python3", source_roots=roots
        )
        preview = store.preview(tree, manifest)
        if leaks := scan_layers(preview.layers, pin.name):
            raise PackageError(
                f"{pin.name}: its image would give fixes away: {leaks[0]}", remedy="Leave that out of the archive"
            )
        runs, calls = await _measure(preview, backend, manifest)
        stable = {i: case.seconds for i, case in runs[0].cases.items() if all(_passed(run, i) for run in runs)}
        if not stable:
            raise _without_tests(pin, runs[0])
        flaky = tuple(sorted({i for run in runs for i in run.cases if _passed(run, i)} - set(stable)))
        manifest = manifest.model_copy(update={"tests": stable, "flaky": flaky})
        environment = store.add_built(tree, manifest)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    covered: dict[str, list[str]] = {}
    for test_id in sorted(stable):
        for path, line in sorted(calls.get(test_id, ())):
            covered.setdefault(f"{path}:{line}", []).append(test_id)
    return BuiltPackage(
        name=pin.name, version=pin.version, environment=environment, source_roots=roots, tests=stable, flaky=flaky,
        covered={place: tuple(ids) for place, ids in covered.items()},
    )  # fmt: skip


async def _build(store: EnvironmentStore, pin: pins.Pin, backend: Backend, cache: Path) -> BuiltPackage:
    base = await _probe(store, backend)
    made_of = repr((pin, base, pins.TOOLCHAIN_LOCK.read_bytes(), FORMAT))
    key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    record = store.root / "packages" / f"{pin.name}-{pin.version}-{key}.json"
    if record.is_file():
        built = BuiltPackage.model_validate_json(record.read_bytes())
        if store.has(built.environment.digest):
            return built
    archive = await asyncio.to_thread(pins.fetch, pin, cache)
    built = await build_archive(store, archive, pin, backend=backend, cache=cache)
    record.parent.mkdir(parents=True, exist_ok=True)
    draft = record.with_suffix(f".{built.environment.digest[:8]}.tmp")
    draft.write_text(built.model_dump_json())
    draft.replace(record)
    return built


async def _probe(store: EnvironmentStore, backend: Backend, modules: Sequence[str] = ()) -> Base:
    """What Python a sandbox has before any environment is laid over it."""
    spec = store.spec(InlineEnvironment(files={"README": "probe\n"}))
    async with await backend.start(spec, limits=BUILD_LIMITS) as sandbox:
        result = await sandbox.exec(f'python3 -I -c "{PROBE}" {" ".join(modules)}', timeout=60.0)
    lines = result.output.decode("utf-8", "replace").splitlines()
    if result.exit_code != 0 or len(lines) < 3:
        raise PackageError(
            f"no usable python3 in the sandbox: {' '.join(lines)[-300:]}", remedy="Install python3 3.11 or later"
        )
    return Base(lines[0], lines[1], frozenset(lines[2].split()))


def source_roots(files: dict[str, TreeFile]) -> tuple[str, ...]:
    """Directories of a checkout that must be on the path: `src` when packages live there, else the checkout."""
    return ("src",) if any(path.startswith("src/") and path.endswith(".py") for path in files) else (".",)


def top_level_modules(files: dict[str, TreeFile], roots: Sequence[str]) -> list[str]:
    """Names that the package adds at the top level (tests and set-up files are not among them)."""
    names: set[str] = set()
    for root in roots:
        prefix = "" if root == "." else f"{root}/"
        for path in files:
            first, _, rest = path.removeprefix(prefix).partition("/")
            if path.startswith(prefix) and ((rest == "__init__.py") or (not rest and first.endswith(".py"))):
                names.add(first.removesuffix(".py"))
    return sorted(
        n for n in names if n.isidentifier() and not n.startswith(("test", "setup", "conftest", "docs", "versioneer"))
    )


def _lay_out(
    tree: Path, pin: pins.Pin, files: dict[str, TreeFile], roots: Sequence[str], base: Base, info: bytes, tools: Path
) -> None:
    """Write what appears below the home directory: `repo/` and a virtual environment with pytest."""
    for path, file in files.items():
        target = tree / "repo" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(0o755 if file.executable else 0o644)
    venv = tree / ".venv"
    site = venv / "lib" / f"python{base.version}" / "site-packages"
    shutil.copytree(tools, site)
    paths = "".join(f"{WORKDIR}\n" if root == "." else f"{WORKDIR}/{root}\n" for root in roots)
    module = pin.name.replace("-", "_")
    (site / f"__editable__.{module}.pth").write_text(paths)
    dist = site / f"{module}-{pin.version}.dist-info"
    dist.mkdir()
    (dist / "METADATA").write_bytes(
        info or f"Metadata-Version: 2.1\nName: {pin.name}\nVersion: {pin.version}\n".encode()
    )
    (dist / "INSTALLER").write_text("pip\n")
    home = str(Path(base.executable).parent)
    (venv / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\nversion = {base.version}\n")
    (venv / "bin").mkdir()
    (venv / "bin" / "python3").symlink_to(base.executable)
    (venv / "bin" / "python").symlink_to("python3")
    script = venv / "bin" / "pytest"
    script.write_text(
        f"#!{HOME}/.venv/bin/python3\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
    )
    script.chmod(0o755)


def _variables() -> dict[str, str]:
    return {
        "PATH": f"{HOME}/.venv/bin:/usr/local/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": f"{HOME}/.venv",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


async def _measure(
    spec: EnvSpec, backend: Backend, manifest: Manifest
) -> tuple[list[TestRun], dict[str, frozenset[tuple[str, int]]]]:
    """Run the whole suite in fresh sandboxes: plainly `REPEATS` times, and once more to see what each test enters."""
    runs: list[TestRun] = []
    for cover in (*(False for _ in range(REPEATS)), True):
        async with await backend.start(spec, limits=BUILD_LIMITS) as sandbox:
            order = Order(files=(".",), ids=None, python=manifest.python, seconds=SUITE_SECONDS, cover=cover)
            runs.append(await collect(sandbox, PytestAdapter(), order))
        if not any(_passed(runs[-1], test_id) for test_id in runs[-1].cases):
            break
    return runs, runs[-1].calls


def _passed(run: TestRun, test_id: str) -> bool:
    return run.status(test_id) == "passed"


def _without_tests(pin: pins.Pin, run: TestRun) -> PackageWithoutTests:
    if run.cases:
        test_id, case = next(iter(run.cases.items()))
        cause = f"none of its {len(run.cases)} tests passes every time; {test_id} {case.status}: {case.message[-200:]}"
    elif run.file_errors:
        cause = f"its tests cannot be collected: {next(iter(run.file_errors.values()))[-200:]}"
    elif run.timed_out or not run.finished:
        cause = f"its test run did not end: {run.ending}"
    else:
        cause = "its source distribution carries no tests"
    return PackageWithoutTests(f"{pin.name} {pin.version}: {cause}", remedy="Choose a package whose tests pass offline")


def with_backend(work: Callable[[Backend], Awaitable[T]]) -> T:
    """Run the coroutine `work(backend)` in a fresh event loop with a backend of its own, and close that."""
    from sandbox.backends.namespaces.backend import NamespacesBackend

    async def run() -> T:
        backend = NamespacesBackend()
        try:
            return await work(backend)
        finally:
            await backend.close()

    return asyncio.run(run())
