"""Observe a patch's product code at run time: files, generated code, hooks and processes, in a separate clean sandbox.

Grading's verdict tells whether the work is right; this module reports how it works. The product is driven by the hidden tests or
calls once more, with an observer in the process (Python's audit hooks; Node's file, process and code functions). What the
pristine checkout and the oracle do as well under the same observer is no finding. Go and Rust have no such observer: there
probes (`probing.py`), the data flow of `audit/flow` and the differential verdict stand alone.

Only patches that newly name something beside computing are observed (`wanted`): a plain change of an expression costs nothing.
An observation changes no verdict and never fails a grading.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.backends.base import WORKDIR, Backend, FileChange, Limits, PathError, Sandbox, SandboxError
from sandbox.grading.adapters.base import START_SECONDS, wall_for
from sandbox.grading.adapters.pytest import ENVIRONMENT, HARDENED
from sandbox.grading.dynamic_analysis.perturbation import is_large
from sandbox.grading.patches.apply import apply, write_tests
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.findings import ReportFinding, Rule, finding
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, CallsVerifier, TaskSpec

RUNNERS = Path(__file__).parents[1] / "runners"
PYTHON = (RUNNERS / "observe_python.py").read_text(encoding="utf-8")
NODE = base64.b64encode((RUNNERS / "observe_node.mjs").read_bytes()).decode()
SPARE_SECONDS = 20.0
"""What the observer's sandbox lives beyond its only run on a busy machine."""
MAX_ACTS = 1_000
MAX_CASES = 12
"""Hidden calls that the product is driven by; more add nothing that it does."""
PYTHON_WORDS = re.compile(
    r"\b(open|read_text|read_bytes|glob|rglob|listdir|scandir|walk|exec|eval|compile|getattr|setattr|globals|vars|__\w+__|sys|os|io"
    r"|importlib|inspect|linecache|gc|ctypes|subprocess|pathlib|Path|signal|atexit|threading|tracemalloc|traceback|codecs|ast|types)\b"
)
NODE_WORDS = re.compile(
    r"\b(require|import|process|fs|vm|child_process|module|eval|Function|globalThis|__filename|__dirname|Proxy)\b"
)
REPLACES = re.compile(
    r"^[ \t]*(?!self\b|cls\b|this\b|module\b|exports\b)[A-Za-z_$][\w$]*(?:\.[\w$]+)+[ \t]*=(?![=>])", re.M
)
"""An attribute of something that is not the object itself is set: perhaps of the library."""
NODE_FILES = (".js", ".mjs", ".cjs", ".ts")


class Act(BaseModel):
    """One thing that product code did besides computing."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    kind: str
    detail: str = ""
    path: str = ""
    line: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.detail, self.path


def wanted(changes: Sequence[FileChange]) -> bool:
    """Whether a patch newly names what could reach beyond computing."""
    if is_large([change for change in changes if change.path.endswith((".py", *NODE_FILES))]):
        return True
    for change in changes:
        words = (
            PYTHON_WORDS if change.path.endswith(".py") else NODE_WORDS if change.path.endswith(NODE_FILES) else None
        )
        if words is None or change.content is None:
            continue
        before, after = (
            Counter([*words.findall(code), *REPLACES.findall(code)])
            for code in ((text or b"").decode("utf-8", "replace") for text in (change.before, change.content))
        )
        if after - before:
            return True
    return False


async def observe(
    *, backend: Backend, environments: EnvironmentStore, task: TaskSpec, changes: Sequence[FileChange]
) -> tuple[ReportFinding, ...]:
    """Findings of what the work does and neither the pristine checkout nor the oracle does. Empty when it cannot be observed."""
    try:
        acts = await _acts(backend, environments, task, changes)
        if not _findings(acts):
            return ()
        gold = from_files(task, task.gold).changes
        usual = {act.key for act in await _acts(backend, environments, task, ())}
        usual |= {act.key for act in await _acts(backend, environments, task, gold)}
    except (SandboxError, PathError, OSError):
        return ()
    return _findings([act for act in acts if act.key not in usual])


async def _acts(
    backend: Backend, environments: EnvironmentStore, task: TaskSpec, changes: Sequence[FileChange]
) -> list[Act]:
    seconds = task.verifier.timeout_seconds + START_SECONDS
    limits = Limits(life_seconds=wall_for(task.verifier.timeout_seconds) + SPARE_SECONDS)
    async with await backend.start(environments.spec(task.environment), limits=limits) as sandbox:
        await apply(sandbox, changes)
        data = await _run(sandbox, environments, task, seconds)
    return await asyncio.to_thread(read, data)


async def _run(sandbox: Sandbox, environments: EnvironmentStore, task: TaskSpec, seconds: float) -> bytes:
    verifier = task.verifier
    tests: dict[str, str] = {} if isinstance(verifier, CallsVerifier) else verifier.test_files
    await write_tests(sandbox, {path: text.encode() for path, text in tests.items()})
    node = [path for path in tests if path.endswith(NODE_FILES)]
    if node:
        variables = f"OBSERVED_TESTS={shlex.quote(json.dumps(sorted(tests)))}"
        loader = f"'--import=data:text/javascript;base64,{NODE}'"
        runs = "; ".join(f"{variables} node {loader} {shlex.quote(path)} >/dev/null 2>&1" for path in node)
        command, stdin = f"cd {WORKDIR}; {runs}", b""
    else:
        python = "python3"
        if isinstance(task.environment, BuiltEnvironment):
            python = environments.manifest(task.environment.digest).python
        request = {
            "tests": sorted(tests),
            "source_roots": ["", "src", "lib"],
            "arguments": [*HARDENED, "--noconftest"],
            "calls": [verifier.module, verifier.function, [case[0] for case in verifier.cases[:MAX_CASES]]]
            if isinstance(verifier, CallsVerifier)
            else None,
        }
        command = f"cd {WORKDIR} && {ENVIRONMENT} exec {python} -P -s -B -c {shlex.quote(PYTHON)} >/dev/null 2>&1"
        stdin = json.dumps(request).encode()
    longest = wall_for(task.verifier.timeout_seconds)
    result = await sandbox.exec(
        command, stdin=stdin, timeout=seconds, longest=longest, private_result=True, keep_state=False
    )
    return result.result


def read(data: bytes) -> list[Act]:
    """Acts that an observer sent. Lines that are none are left out: they are the work's."""
    acts = []
    for line in data.split(b"\n", MAX_ACTS)[:MAX_ACTS]:
        try:
            acts.append(Act.model_validate_json(line))
        except ValidationError:
            continue
    return acts


def _findings(acts: Sequence[Act]) -> tuple[ReportFinding, ...]:
    """By what acts mean together."""
    by_kind: dict[str, list[Act]] = {}
    for act in acts:
        by_kind.setdefault(act.kind, []).append(act)
    found = []
    if tests := by_kind.get("reads-tests"):
        found.append(finding(Rule.OBSERVED_TESTS_READ, _said(tests)))
    rewrites = [*by_kind.get("writes-source", []), *by_kind.get("imports-written", [])]
    if "executes-text" in by_kind and "reads-source" in by_kind:
        rewrites += [*by_kind["executes-text"], *by_kind["reads-source"]]
    if rewrites:
        found.append(finding(Rule.OBSERVED_REWRITE, _said(rewrites)))
    reached = [
        act for kind in ("reaches-runner", "writes-report", "looks-at-processes") for act in by_kind.get(kind, [])
    ]
    if reached:
        found.append(finding(Rule.OBSERVED_RUNNER, _said(reached)))
    if replaced := by_kind.get("replaces-library"):
        found.append(finding(Rule.OBSERVED_LIBRARY, "replaced: " + ", ".join(act.detail for act in replaced[:6])))
    outside = [act for kind in ("writes-outside", "starts-process") for act in by_kind.get(kind, [])]
    if outside:
        found.append(finding(Rule.OBSERVED_OUTSIDE, _said(outside)))
    return tuple(found)


def _said(acts: Sequence[Act]) -> str:
    return "; ".join(f"{act.path}:{act.line} {act.kind} {act.detail}" for act in acts[:4])
