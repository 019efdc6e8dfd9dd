"""A task: instruction + environment + hidden verifier, as one immutable, hashed bundle.

Both task sources (real packages, the procedural family) and every later importer produce `TaskSpec`.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sandbox.repositories.files import Files, RelativePath, check_relative_path

MAX_TEST_IDS = 20_000


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InlineEnvironment(Frozen):
    """A repository small enough to travel inside the bundle: path → text. Runs on the bare base system."""

    kind: Literal["inline"] = "inline"
    files: Files


class BuiltEnvironment(Frozen):
    """A prepared environment of the environment store, by digest, plus files laid over it (the planted bug)."""

    kind: Literal["built"] = "built"
    digest: str
    overrides: Files = Field(default_factory=dict)


class CallsVerifier(Frozen):
    """Hidden cases `function(*arguments) == expected`, compared outside the sandbox.

    Only the arguments enter the grading sandbox; `expected` (the `repr` of the right value) never does.
    """

    kind: Literal["calls"] = "calls"
    module: RelativePath
    """Path of the module below the checkout, e.g. `totals.py`."""
    function: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}$")
    cases: tuple[tuple[str, str], ...] = Field(min_length=1, max_length=MAX_TEST_IDS)
    """(arguments as the repr of a tuple of literals, expected repr). Test ids are `case-000`, ..."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=3600)


class SuiteVerifier(Frozen):
    """What verifiers that run a test suite have in common: exact ids that must pass, in pristine test files."""

    test_files: Files
    """Pristine test and configuration files laid over the checkout before the run: path → text."""
    fail_to_pass: tuple[str, ...] = Field(min_length=1, max_length=MAX_TEST_IDS)
    pass_to_pass: tuple[str, ...] = Field(default=(), max_length=MAX_TEST_IDS)
    timeout_seconds: float = Field(default=120.0, gt=0, le=3600)


class PytestVerifier(SuiteVerifier):
    """Hidden pytest run."""

    kind: Literal["pytest"] = "pytest"
    pytest_args: tuple[str, ...] = ()


FrameworkName = Literal["unittest", "go", "cargo", "node", "jest", "vitest", "junit"]


class FrameworkVerifier(SuiteVerifier):
    """Hidden run of another test framework (`sandbox/grading/adapters/`)."""

    kind: Literal["framework"] = "framework"
    framework: FrameworkName
    arguments: tuple[str, ...] = ()
    """Further arguments of the run; for `junit` the whole command."""
    report: str = ""
    """`junit` only: path of the XML report that the command writes below the checkout."""

    @model_validator(mode="after")
    def _junit_has_a_report(self) -> Self:
        if (self.framework == "junit") != bool(self.report and self.arguments):
            raise ValueError("framework junit needs `arguments` (the command) and `report`; the others have no report")
        if self.report:
            check_relative_path(self.report)
        return self


Environment = Annotated[InlineEnvironment | BuiltEnvironment, Field(discriminator="kind")]
Verifier = Annotated[CallsVerifier | PytestVerifier | FrameworkVerifier, Field(discriminator="kind")]


TaskSource = Literal[
    "procedural",
    "mutation",
    "distance",
    "combination",
    "deletion",
    "mining",
    "rename",
    "move",
    "migration",
    "tests",
    "examples",
    "harbor",
    "swe-bench",
    "session",
]
Category = Literal["debug", "feature", "refactor", "tests", "docs", "migration", "structure", "performance", "other"]


class TaskSpec(Frozen):
    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$")
    source: TaskSource
    category: Category = "debug"
    instruction: str = Field(min_length=1, max_length=20_000)
    environment: Environment
    verifier: Verifier
    gold: Files
    """The oracle's files after the fix: path → full text. Never shown to a policy."""
    protected: tuple[str, ...] = ()
    """Paths (or directories ending in `/`) whose changes by the agent are dropped before grading."""
    family: str = Field(default="", max_length=200)
    """Structure key: held-out tasks share no `family` with training tasks of a procedural suite."""

    @property
    def bundle_hash(self) -> str:
        """SHA-256 over the canonical JSON of the whole bundle; controls and rollouts are bound to it."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
