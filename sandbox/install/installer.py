"""Stage 2: install a checkout from its initial state until three goals are met, at most five times; then the final check.

    record = await install(store, checkout, backend=backend, upstreams=upstreams)

All code of the checkout runs in sandboxes that reach only package registries; the final check has no network at all.
Finished work is stored under the hash of the checkout, so an interrupted installation resumes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.backends.base import HOME, Backend, EnvSpec, NetPolicy
from sandbox.grading.adapters.base import TestRun
from sandbox.install import verify as check
from sandbox.install.recipes.base import Installed, Log, Recipe
from sandbox.install.recipes.cargo import CargoRecipe
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.install.recipes.go import GoRecipe
from sandbox.install.recipes.goals import GoalSet, draw
from sandbox.install.recipes.npm.recipe import NpmRecipe
from sandbox.install.recipes.python.recipe import PythonRecipe
from sandbox.install.record import Attempt, Evidence, InstallRecord
from sandbox.install.tools import tools_layer
from sandbox.install.tree import lay_out, merge, scrub, size_of
from sandbox.network import AuditRecord, RegistryPolicy, Upstreams
from sandbox.network.audit import Sink
from sandbox.network.gateway import RegistryGateway
from sandbox.network.upstream import SETTINGS
from sandbox.packages.build import BuiltPackage
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.ownership import give_to_sandbox
from sandbox.tasks.environments import EnvironmentStore, Manifest
from sandbox.tasks.files import replace_file
from sandbox.tasks.leaks import scan_layers

ATTEMPTS = 5
FORMAT = "install-5"
"""Changed whenever the same checkout would come out differently."""
SECONDS = 1800.0
"""All attempts together."""
STAGE_SECONDS = 600.0
"""Installing, or the final check, of one attempt."""
MAX_ASIDE, MAX_ASIDE_SHARE = 2, 0.02
"""Tests that are not the same in every repeat: so many are set aside, and three further repeats are to agree."""
HOMES = (".cache", ".npm", ".local", ".config")
"""What installing leaves in the home directory."""
LAST = frozenset(
    {
        Reason.NO_TESTS,
        Reason.LANGUAGE_VERSION,
        Reason.NETWORK,
        Reason.SERVICE,
        Reason.GPU,
        Reason.SECRETS,
        Reason.LEAK,
        Reason.TIMEOUT,
    }
)
"""Reasons that another attempt does not change."""
RECIPES: tuple[Recipe, ...] = (GoRecipe(), CargoRecipe(), NpmRecipe(), PythonRecipe())
"""In this order: a Python file in a Go project is a tool of it, seldom the other way round."""


def recipe_of(checkout: Checkout, recipes: Sequence[Recipe] = RECIPES) -> Recipe:
    """The recipe that applies. Raises InstallFailed."""
    for recipe in recipes:
        if recipe.applies(checkout):
            return recipe
    known = ", ".join(recipe.language for recipe in recipes)
    raise InstallFailed(
        Reason.NO_RECIPE, f"{checkout.name}: nothing in it says how to install it", remedy=f"Known are {known}"
    )


def record_path(store: EnvironmentStore, checkout: Checkout, tier: str = "deterministic") -> Path:
    key = hashlib.sha256(f"{FORMAT} {tier} {checkout.digest}".encode()).hexdigest()[:32]
    return store.root / "installs" / f"{key}.json"


async def install(
    store: EnvironmentStore,
    checkout: Checkout,
    *,
    backend: Backend,
    upstreams: Upstreams,
    log: Log,
    policy: RegistryPolicy | None = None,
    provenance: dict[str, str] | None = None,
    recipe: Recipe | None = None,
    attempts: int = ATTEMPTS,
    seconds: float = SECONDS,
    stage_seconds: float = STAGE_SECONDS,
) -> InstallRecord:
    """Both stages, or the record of an earlier time. Raises InstallFailed (nothing to go by), SandboxError."""
    recipe = recipe or recipe_of(checkout)
    kept = record_path(store, checkout, recipe.language)
    if kept.is_file():
        record = InstallRecord.model_validate_json(kept.read_bytes())
        if record.built is None or store.has(record.built.environment.digest):
            log(f"already known: {record.problem or 'installed'}")
            return record
    began = time.monotonic()
    goals = read_goals(kept) or write_goals(kept, draw(recipe.goals(checkout), seed=checkout.digest))
    for index, goal in enumerate(goals.goals):
        log(f"goal {index + 1}{' (shown)' if index in goals.shown else ''}: {goal.command}: {goal.description}")
    gateway = RegistryGateway(_open(policy or recipe.registries, upstreams, log), upstreams, _heard(log))
    work = _Stage2(store, checkout, recipe, goals, backend, gateway, log, began, began + seconds, stage_seconds)
    record = await work.run(attempts, provenance or {})
    replace_file(kept, record.model_dump_json(indent=1))
    return record


def read_goals(kept: Path) -> GoalSet | None:
    """Those of stage 1, beside the record that they belong to; None before they are written."""
    path = kept.with_suffix(".goals.json")
    return GoalSet.model_validate_json(path.read_bytes()) if path.is_file() else None


def write_goals(kept: Path, goals: GoalSet) -> GoalSet:
    """Once and for all: what is shown to an installer does not change between attempts."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    replace_file(kept.with_suffix(".goals.json"), goals.model_dump_json(indent=1))
    return goals


def _open(policy: RegistryPolicy, upstreams: Upstreams, log: Log) -> RegistryPolicy:
    """The policy without registries that this machine does not know: a checkout may do without."""
    closed = [k for k in ("npm", "go", "cargo") if getattr(policy, k) is not None and not getattr(upstreams, k)]
    for kind in closed:
        log(f"no registry of {kind} packages is known here: set {SETTINGS[kind]} where packages are needed")
    return policy.model_copy(update=dict.fromkeys(closed))


def _heard(log: Log) -> Sink:
    def sink(record: AuditRecord) -> None:
        if record.decision != "allowed":
            log(f"registry: {record.decision} {record.rule} {record.path} {record.detail}"[:500])

    return sink


@dataclass
class _Stage2:
    store: EnvironmentStore
    checkout: Checkout
    recipe: Recipe
    goals: GoalSet
    backend: Backend
    gateway: RegistryGateway
    log: Log
    began: float
    end: float
    """By the monotonic clock; nothing goes on after it."""
    stage_seconds: float
    best: Evidence = field(default_factory=Evidence)
    beside: dict[str, str] = field(default_factory=dict)
    """Where parts of the accepted environment come from, by its recipe."""
    attempts: list[Attempt] = field(default_factory=list)

    async def run(self, attempts: int, provenance: dict[str, str]) -> InstallRecord:
        failure = InstallFailed(Reason.INSTALL, "no attempt was made")
        for number in range(1, attempts + 1):
            start = time.monotonic()
            self.log(f"attempt {number} of at most {attempts}")
            tree = self.store.working_directory()
            try:
                accepted = await self.attempt(tree, number)
            except InstallFailed as error:
                failure = error
                self.log(f"attempt {number} failed: {error.reason}: {error}")
                self.attempts.append(self._attempt(number, start, error))
                if time.monotonic() > self.end or self._last(error.reason):
                    break
                continue
            finally:
                shutil.rmtree(tree, ignore_errors=True)
            self.attempts.append(self._attempt(number, start, None))
            return self._record(provenance | self.beside, accepted)
        return self._record(provenance, {"reason": failure.reason, "problem": str(failure)})

    def _last(self, reason: Reason) -> bool:
        """Whether nothing else is worth trying: tests that fail get one more attempt, bounded to their era."""
        if reason in (Reason.FAILING_TESTS, Reason.FLAKY):
            return self.checkout.year is None or len(self.attempts) > 1
        return reason in LAST

    def _record(self, provenance: dict[str, str], found: dict[str, object]) -> InstallRecord:
        return InstallRecord(
            name=self.checkout.name, version=self.checkout.version, checkout=self.checkout.digest,
            language=self.recipe.language, goals=self.goals, provenance=provenance, attempts=tuple(self.attempts),
            evidence=self.best, seconds=round(time.monotonic() - self.began, 1),
        ).model_copy(update=found)  # fmt: skip

    def _attempt(self, number: int, start: float, error: InstallFailed | None) -> Attempt:
        reason, problem = (error.reason, str(error)[:2000]) if error else (None, "")
        seconds = round(time.monotonic() - start, 1)
        return Attempt(number=number, tier=self.goals.by, reason=reason, problem=problem, seconds=seconds)

    @asynccontextmanager
    async def _stage(self, what: str) -> AsyncIterator[None]:
        """A bound on what is done in it. Raises InstallFailed."""
        left = max(1.0, min(self.stage_seconds, self.end - time.monotonic()))
        try:
            async with asyncio.timeout(left):
                yield
        except TimeoutError as error:
            raise InstallFailed(Reason.TIMEOUT, f"{what} did not end within {left:.0f} s") from error

    async def attempt(self, tree: Path, number: int) -> dict[str, object]:
        """One attempt from the initial state. Raises InstallFailed, SandboxError."""
        async with self._stage("installing"):
            installed, problems, packages = await self._installed(tree, number)
        scrub(tree, homes=HOMES)
        manifest = Manifest(
            name=self.checkout.name, version=self.checkout.version, env=installed.env, python=installed.python,
            source_roots=installed.source_roots,
        )  # fmt: skip
        preview = self.store.preview(tree, manifest)
        if installed.problem:
            await self._look(preview, installed)
            raise installed.problem
        if problems:
            await self._look(preview, installed)
            raise InstallFailed(Reason.GOALS, problems[0])
        try:
            async with self._stage("the final check"):
                return await self._final(tree, preview, manifest, installed, packages)
        except InstallFailed as error:
            if error.reason is Reason.TIMEOUT:
                await self._look(preview, installed)
            raise

    async def _installed(self, tree: Path, number: int) -> tuple[Installed, list[str], tuple[str, ...]]:
        """In `tree`, with which of the goals shown are not met and what was installed. Raises InstallFailed, SandboxError."""
        lay_out(tree, self.checkout.files)
        give_to_sandbox(tree)
        home = self.store.preview(tree, Manifest(name="x", version="0"))
        spec = EnvSpec(layers=(*home.layers, tools_layer(self.store)), env=home.env)
        async with await self.backend.start(spec, limits=check.LIMITS, net=NetPolicy(self.gateway)) as box:
            settings = {f"{HOME}/{path}": text.encode() for path, text in self.gateway.files.items()}
            for path, content in settings.items():
                await box.write(path, content)
            installed = await self.recipe.install(box, self.checkout, attempt=number, log=self.log)
            problems = [] if installed.problem else await check.run_goals(box, self.goals.seen, installed, self.log)
            if not installed.problem and not problems:
                await self.recipe.clean(box, self.checkout, installed, self.log)
            packages = installed.packages
            if installed.framework == "pytest":
                listed = await box.exec(f"uv pip freeze --python {installed.python}", timeout=60.0, keep_state=False)
                packages = tuple(re.findall(r"(?m)^[\w.-]+==\S+$", listed.output.decode("utf-8", "replace")))
            for path, content in settings.items():
                if await box.read(path) == content:  # what a recipe wrote in its place is the environment's own
                    await box.delete(path)
            with tempfile.TemporaryDirectory(dir=tree.parent) as folder:
                snapshot = await box.snapshot(Path(folder) / "layer")
                merge(snapshot.layer, tree)
        return installed, problems, packages

    async def _look(self, preview: EnvSpec, installed: Installed) -> None:
        """What a failed attempt can do all the same, for the record."""
        async with await self.backend.start(preview, limits=check.LIMITS) as box:
            importable = await check.imports(box, installed)
        run = installed.run or TestRun()
        self._keep(
            Evidence(
                importable=importable, collected=len(run.cases), not_loaded=len(run.file_errors),
                left_out=installed.left_out,
                passed=sum(c.status == "passed" for c in run.cases.values()),
                skipped=sum(c.status == "skipped" for c in run.cases.values()),
            )
        )  # fmt: skip

    def _keep(self, found: Evidence) -> None:
        if (found.importable, found.share, found.collected) >= (
            self.best.importable,
            self.best.share,
            self.best.collected,
        ):
            self.best = found

    async def _final(
        self, tree: Path, preview: EnvSpec, manifest: Manifest, installed: Installed, packages: tuple[str, ...]
    ) -> dict[str, object]:
        """The unseen goals and the suite in fresh sandboxes without network. Raises InstallFailed, SandboxError."""
        found = await check.verify(preview, installed, self.goals.unseen, backend=self.backend, log=self.log)
        aside = check.unsteady(found.runs)
        if aside and not found.problem and len(aside) <= max(MAX_ASIDE, MAX_ASIDE_SHARE * found.evidence.collected):
            self.log(f"not the same in every repeat, set aside by name: {', '.join(aside)}")
            installed = check.without(installed, aside)
            found = await check.verify(preview, installed, self.goals.unseen, backend=self.backend, log=self.log)
            found.evidence = found.evidence.model_copy(update={"set_aside": len(aside)})
        else:
            aside = ()
        self._keep(found.evidence)
        if found.problem:
            raise InstallFailed(Reason.GOALS, f"an unseen goal is not met: {found.problem}")
        if leaks := scan_layers(preview.layers, self.checkout.name):
            raise InstallFailed(Reason.LEAK, f"the image would give fixes away: {leaks[0]}")
        tests, unstable = check.stable(found.runs)
        flaky = tuple(sorted({*unstable, *aside}))
        if not tests:
            raise InstallFailed(Reason.FLAKY, "no test passes in every repeat")
        places: dict[str, list[str]] = {}
        if installed.framework == "pytest":
            run = await check.covered(preview, installed.order, tests, backend=self.backend)
            changed = {i for i in tests if i in run.cases and run.status(i) != "passed"}
            flaky = tuple(sorted({*flaky, *changed}))
            tests = {i: seconds for i, seconds in tests.items() if i not in changed}
            for test_id in sorted(tests):
                for path, line in sorted(run.calls.get(test_id, ())):
                    places.setdefault(f"{path}:{line}", []).append(test_id)
        self.beside = installed.provenance
        size = size_of(tree)
        environment = self.store.add_built(tree, manifest.model_copy(update={"tests": tests, "flaky": flaky}))
        built = BuiltPackage(
            name=self.checkout.name, version=self.checkout.version, environment=environment,
            source_roots=installed.source_roots, tests=tests, flaky=flaky,
            covered={place: tuple(ids) for place, ids in places.items()}, pytest_args=installed.order.arguments,
        )  # fmt: skip
        self.log(
            f"accepted: {len(tests)} stable tests, {len(flaky)} flaky, {len(places)} functions covered, {size} bytes"
        )
        return {
            "built": built, "framework": installed.framework, "test_command": installed.test_command, "image_bytes": size,
            "packages": packages,
        }  # fmt: skip
