"""A task: instruction + environment + hidden verifier, as one immutable, hashed bundle.

Both task sources (real packages, the procedural family) and every later importer produce `TaskSpec`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

MAX_FILE_BYTES = 1 << 20


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def check_relative_path(path: str) -> str:
    """A normalised POSIX path below the checkout; raises ValueError that names the path."""
    pure = PurePosixPath(path)
    if (
        not path
        or path != str(pure)
        or pure.is_absolute()
        or ".." in pure.parts
        or ".git" in pure.parts
        or "\0" in path
    ):
        raise ValueError(f"path {path!r} is not a plain relative path inside the repository")
    return path


class InlineEnvironment(Frozen):
    """A repository small enough to travel inside the bundle: path → text. Runs on the bare base system."""

    kind: Literal["inline"] = "inline"
    files: dict[str, str]

    @field_validator("files")
    @classmethod
    def _paths(cls, files: dict[str, str]) -> dict[str, str]:
        for path, text in files.items():
            check_relative_path(path)
            if len(text.encode()) > MAX_FILE_BYTES:
                raise ValueError(f"file {path!r} is larger than {MAX_FILE_BYTES} bytes; use a built environment")
        return files


class BuiltEnvironment(Frozen):
    """A prepared environment of the environment store, by digest, plus files laid over it (the planted bug)."""

    kind: Literal["built"] = "built"
    digest: str
    overrides: dict[str, str] = Field(default_factory=dict)

    @field_validator("overrides")
    @classmethod
    def _paths(cls, files: dict[str, str]) -> dict[str, str]:
        for path in files:
            check_relative_path(path)
        return files


class CallsVerifier(Frozen):
    """Hidden cases `function(*arguments) == expected`, compared outside the sandbox.

    Only the arguments enter the grading sandbox; `expected` (the `repr` of the right value) never does.
    """

    kind: Literal["calls"] = "calls"
    module: str
    """Path of the module below the checkout, e.g. `totals.py`."""
    function: str
    cases: tuple[tuple[str, str], ...]
    """(arguments as the repr of a tuple of literals, expected repr). Test ids are `case-000`, ..."""
    timeout_seconds: float = 10.0


class PytestVerifier(Frozen):
    """Hidden pytest run: exact ids that must pass, in a pristine copy of the test files."""

    kind: Literal["pytest"] = "pytest"
    test_files: dict[str, str]
    """Pristine test and configuration files laid over the checkout before the run: path → text."""
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    pytest_args: tuple[str, ...] = ()
    timeout_seconds: float = 120.0


Environment = Annotated[InlineEnvironment | BuiltEnvironment, Field(discriminator="kind")]
Verifier = Annotated[CallsVerifier | PytestVerifier, Field(discriminator="kind")]


class TaskSpec(Frozen):
    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$")
    source: Literal["procedural", "mutation"]
    category: Literal["debug", "feature", "refactor", "tests"] = "debug"
    instruction: str = Field(min_length=1, max_length=20_000)
    environment: Environment
    verifier: Verifier
    gold: dict[str, str]
    """The oracle's files after the fix: path → full text. Never shown to a policy."""
    protected: tuple[str, ...] = ()
    """Paths (or directories ending in `/`) whose changes by the agent are dropped before grading."""
    family: str = ""
    """Structure key: held-out tasks share no `family` with training tasks of a procedural suite."""

    @property
    def bundle_hash(self) -> str:
        """SHA-256 over the canonical JSON of the whole bundle; controls and rollouts are bound to it."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
