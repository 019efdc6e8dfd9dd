"""The agent tier: a policy sets the goals and installs checkouts that the deterministic recipes cannot handle.

    record = await install_by_agent(store, checkout, policy, backend=backend, upstreams=upstreams, log=log)

The goal-setter and the installer are two separate conversations that share no context. The installer's result is
judged by the same goals, in the same fresh sandboxes, as a recipe's work.
"""

from __future__ import annotations

import shutil
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from sandbox.backends.base import WORKDIR, Backend, EnvSpec, Sandbox
from sandbox.grading.adapters.base import Order
from sandbox.install import verify as check
from sandbox.install.agent.conversation import ANSWER, Policy, Spent, converse, prompt
from sandbox.install.installer import install, read_goals, record_path, write_goals
from sandbox.install.recipes.base import Installed, Log
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.install.recipes.goals import COUNT, SHARE, Goal, GoalSet, draw
from sandbox.install.recipes.toolchain import SUITE_SECONDS, Attempt
from sandbox.install.record import InstallRecord
from sandbox.install.tree import lay_out
from sandbox.network import RegistryPolicy, Upstreams
from sandbox.network.policy import CargoRules, GoRules, NpmRules
from sandbox.repositories.checkout import Checkout
from sandbox.tasks.environments import EnvironmentStore, Manifest

ATTEMPTS = 5
GOAL_TURNS = 25
Word = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00\n]+$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w{0,99}$")]


class SaidGoals(BaseModel):
    """What the goal-setter hands over."""

    model_config = ConfigDict(extra="forbid")
    goals: list[Goal] = Field(min_length=COUNT, max_length=COUNT)

    @field_validator("goals")
    @classmethod
    def _has_tests(cls, goals: list[Goal]) -> list[Goal]:
        kinds = [goal.kind for goal in goals]
        if kinds.count("suite") != 1 or "tests" not in kinds:
            raise ValueError("one goal must be of kind suite and at least one of kind tests")
        return goals


class SaidInstall(BaseModel):
    """What the installer hands over."""

    model_config = ConfigDict(extra="forbid")
    framework: Literal["pytest", "unittest", "jest", "vitest", "node", "go", "cargo"]
    tests: list[Word] = Field(min_length=1, max_length=2000)
    python: Annotated[str, StringConstraints(pattern=r"^(?:python3|/[\w./+-]{1,200})$")] = "python3"
    arguments: list[Word] = Field(default_factory=list, max_length=50)
    env: dict[Name, Word] = Field(default_factory=dict, max_length=50)
    source_roots: list[Word] = Field(default_factory=lambda: ["."], max_length=20)
    modules: list[Name] = Field(default_factory=list, max_length=50)
    test_command: str = Field(default="", max_length=500)

    @field_validator("tests", "source_roots")
    @classmethod
    def _inside(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if path.startswith(("/", "-")) or ".." in path.split("/"):
                raise ValueError(f"{path!r} is not a path below the checkout")
        return paths


class AgentRecipe:
    """A policy as a recipe: one conversation an attempt, told why the last one failed."""

    registries = RegistryPolicy(npm=NpmRules(), go=GoRules(), cargo=CargoRules())

    def __init__(self, policy: Policy, goals: GoalSet, spent: Spent, provenance: dict[str, str]) -> None:
        self.language = f"agent {policy.name}"
        self._policy, self._goals, self._spent, self._provenance = policy, goals, spent, provenance
        self._failure = ""

    def applies(self, checkout: Checkout) -> bool:
        return True

    def goals(self, checkout: Checkout) -> list[Goal]:
        return list(self._goals.goals)

    async def install(self, box: Sandbox, checkout: Checkout, *, attempt: int, log: Log) -> Installed:
        wanted = "\n".join(f"- `{goal.command}`: {goal.description}" for goal in self._goals.seen)
        failure = f"The last attempt, on a fresh machine, failed: {self._failure}" if self._failure else ""
        task = prompt("install", goals=wanted, failure=failure)
        try:
            said = SaidInstall.model_validate(await converse(self._policy, box, task, spent=self._spent, log=log))
        except ValidationError as error:
            self._failure = _first(error)
            raise InstallFailed(Reason.INSTALL, f"{self._policy.name} answers with {self._failure}") from error
        except InstallFailed as error:
            self._failure = str(error)
            raise
        finally:
            self._provenance["agent"] = f"{self._policy.name}: {self._spent.words()}"
        work = Attempt(box, checkout, attempt, log, said.env)
        await work.begin()
        order = Order(
            files=tuple(said.tests), ids=None, seconds=SUITE_SECONDS, python=said.python, arguments=tuple(said.arguments),
            conftest=any(path.rpartition("/")[2] == "conftest.py" for path in checkout.files), message_chars=1500,
        )  # fmt: skip
        suite = next(goal for goal in self._goals.goals if goal.kind == "suite")
        suite = suite.model_copy(update={"expect": suite.expect.model_copy(update={"passed_share": SHARE})})
        installed = await work.suite(
            said.framework, order, suite, test_command=said.test_command, python=said.python,
            source_roots=tuple(said.source_roots), modules=tuple(said.modules),
        )  # fmt: skip
        self._failure = str(installed.problem or "a command that must work did not, in a fresh sandbox without network")
        return installed

    async def clean(self, box: Sandbox, checkout: Checkout, installed: Installed, log: Log) -> None:
        await Attempt(box, checkout, 1, log).must(f"rm -rf {ANSWER} ~/.cache", "cleaning up failed")


async def set_goals(
    store: EnvironmentStore, checkout: Checkout, policy: Policy, *, backend: Backend, spent: Spent, log: Log
) -> GoalSet:
    """Stage 1 by a policy, in a sandbox without network. Raises InstallFailed, PolicyFailed, SandboxError."""
    tree = store.working_directory()
    try:
        lay_out(tree, checkout.files)
        home: EnvSpec = store.preview(tree, Manifest(name="x", version="0"))
        async with await backend.start(home, limits=check.LIMITS) as box:
            said = await converse(policy, box, prompt("goals"), spent=spent, log=log, turns=GOAL_TURNS)
        goals = SaidGoals.model_validate(said).goals
    except ValidationError as error:
        raise InstallFailed(Reason.GOALS, f"{policy.name} wrote goals with {_first(error)}") from error
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return draw(goals, seed=checkout.digest, by=f"agent {policy.name}")


async def install_by_agent(
    store: EnvironmentStore, checkout: Checkout, policy: Policy, *, backend: Backend, upstreams: Upstreams, log: Log,
    provenance: dict[str, str] | None = None, attempts: int = ATTEMPTS,
) -> InstallRecord:  # fmt: skip
    """Both stages by a policy, or the record of an earlier time. Raises InstallFailed, PolicyFailed, SandboxError."""
    spent = Spent()
    kept = record_path(store, checkout, f"agent {policy.name}")
    goals = read_goals(kept)
    if goals is None:
        log(f"goals by {policy.name}, in {WORKDIR} without network")
        goals = await set_goals(store, checkout, policy, backend=backend, spent=spent, log=log)
        write_goals(kept, goals)
    known = {"agent": policy.name} | (provenance or {})
    record = await install(
        store, checkout, backend=backend, upstreams=upstreams, log=log, attempts=attempts, provenance=known,
        recipe=AgentRecipe(policy, goals, spent, known),
    )  # fmt: skip
    log(f"{policy.name} used {spent.words()}")
    return record


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
