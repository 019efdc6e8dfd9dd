"""The procedural family without processes: the same episodes, tools, grader and engine, in one thread of one process.

For searching and for studies of many runs: a rollout with its update costs about a third of what it costs in real
sandboxes. Backend and client keep the product's contracts, so episodes, groups, rewards and the loop are its own. What
differs is named here: commands are only the family's own (`python run_tests.py` and hidden calls), and code runs in this process,
which is why only the small language of the family is let in (`_admit`). Figures made with it say so.
"""

from __future__ import annotations

import ast
import asyncio
import marshal
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self

from sandbox.backends.base import (
    Capabilities,
    EndReason,
    EnvSpec,
    ExecResult,
    FileChange,
    Limits,
    NetPolicy,
    Patch,
    PathError,
    SandboxError,
    Snapshot,
)
from sandbox.backends.machine import Machine
from sandbox.tasks.environments import MACHINE, EnvironmentStore
from sandbox.tasks.procedural import TEST_COMMAND
from sandbox.tasks.spec import Environment, InlineEnvironment
from trainer import policy as policies
from trainer.config import RLConfig
from trainer.inference.contract import GenerateRequest, GenerateResponse, InferenceError
from trainer.inference.embedded.model import Decoder, Weights
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits as EngineLimits
from trainer.inference.embedded.runner import Runner, make_cache
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.errors import ServerError
from trainer.rl.learner import build_learner, build_reference
from trainer.rl.rl_sync import DEPLOYMENT, SyncRun
from trainer.rollouts.episode import RolloutServices
from trainer.weights import WeightStore

CALL_SECONDS = 0.5
"""Processor time of one run of generated code."""
BUILTINS = {
    name: __builtins__[name] if isinstance(__builtins__, dict) else getattr(__builtins__, name)
    for name in ("range", "enumerate", "sorted", "sum", "min", "max", "len", "zip", "abs", "list", "reversed")
}
NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Expr, ast.Constant, ast.Assign, ast.AugAssign, ast.For,
    ast.If, ast.Return, ast.Name, ast.Load, ast.Store, ast.Tuple, ast.List, ast.Dict, ast.Call, ast.keyword,
    ast.Attribute, ast.Subscript, ast.Slice, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Assert,
    ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.FloorDiv, ast.Div, ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or,
    ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Pass, ast.ImportFrom, ast.alias,
)  # fmt: skip
METHODS = {"append", "items", "get", "sort"}


class TooLong(Exception):
    """Generated code used up its processor time."""


class MemoryEnvironments(EnvironmentStore):
    """Inline environments by digest; nothing is written to disk."""

    def __init__(self) -> None:
        self.files: dict[Path, Mapping[str, str]] = {}

    def spec(self, env: Environment, machine: Machine = MACHINE) -> EnvSpec:
        if not isinstance(env, InlineEnvironment):
            raise SandboxError("only inline environments can be held in memory")
        key = Path(str(id(env.files)))
        self.files[key] = env.files
        return EnvSpec(layers=(key,))


class MemoryBackend:
    """Sandboxes that are dictionaries."""

    name = "memory"

    def __init__(self, environments: MemoryEnvironments) -> None:
        self.environments = environments

    def probe(self) -> Capabilities:
        return Capabilities(usable=True, cgroup="none")

    async def start(
        self,
        env: EnvSpec,
        *,
        limits: Limits = Limits(),
        net: NetPolicy = NetPolicy.NONE,
        snapshot: Snapshot | None = None,
    ) -> MemorySandbox:
        return MemorySandbox(self.environments.files[env.layers[0]], limits)

    async def sweep(self) -> int:
        return 0

    async def close(self) -> None:
        """There is nothing to stop."""


class MemorySandbox:
    name = "memory"

    def __init__(self, files: Mapping[str, str], limits: Limits) -> None:
        self.pristine = files
        self.files = dict(files)
        self.limits = limits

    async def exec(
        self,
        command: str,
        *,
        timeout: float | None = None,
        longest: float | None = None,
        stdin: bytes = b"",
        env: dict[str, str] | None = None,
        private_result: bool = False,
        keep_state: bool = True,
    ) -> ExecResult:
        if private_result:
            return _ended(0, b"", result=self._hidden_calls(stdin))
        if command.strip() != TEST_COMMAND:
            return _ended(127, b"bash: command not found\n")
        code, output = self._visible_tests()
        return _ended(code, output)

    def _hidden_calls(self, request: bytes) -> bytes:
        """What `sandbox/grading/runners/calls.py` answers, without a process."""
        module, function, orders, cases, limit = marshal.loads(request)
        records = b""
        for number, order in enumerate(orders):
            for index in order:
                try:
                    with processor_time(CALL_SECONDS):
                        scope = _scope(self.files[module])
                        value = scope[function](*ast.literal_eval(cases[index]))
                    body = f"V {value!r}"  # the admitted language makes plain values only
                except (Exception, RecursionError) as error:  # noqa: BLE001 - whatever generated code raises is its result
                    body = f"E {type(error).__name__}: {error}"
                data = body[: limit + 3].encode("utf-8", "backslashreplace")
                records += b"%d %d %d\n%s" % (number, index, len(data), data)
        return records

    def _visible_tests(self) -> tuple[int, bytes]:
        """What `run_tests.py` prints, without a process."""
        passed, failures = 0, []
        for name in sorted(self.files):
            if not (name.startswith("test_") and name.endswith(".py")):
                continue
            try:
                with processor_time(CALL_SECONDS):
                    imported = re.search(r"^from (\w+) import (\w+)$", self.files[name], re.M)
                    given = _scope(self.files[f"{imported[1]}.py"]) if imported else {}
                    scope = _scope(self.files[name], given)
                    for key, check in sorted(scope.items()):
                        if key.startswith("test_"):
                            check()
                            passed += 1
            except AssertionError as error:
                failures.append(f"got {error.args[0]!r}" if error.args else "assertion failed")
            except (Exception, RecursionError) as error:  # noqa: BLE001
                failures.append(f"got {type(error).__name__}")
        if failures:
            return 1, f"{len(failures)} failed: {'; '.join(failures)}\n".encode()
        return 0, f"{passed} passed\n".encode()

    async def read(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        if path not in self.files:
            raise PathError(f"no such file: {path}")
        return self.files[path].encode()

    async def write(self, path: str, content: bytes, *, executable: bool = False) -> None:
        if path in (".", ""):
            raise PathError("is a directory")
        self.files[path] = content.decode("utf-8", "replace")

    async def delete(self, path: str) -> None:
        if self.files.pop(path, None) is None:
            raise PathError(f"no such file: {path}")

    async def search(
        self, pattern: str, path: str, *, glob: str | None, max_matches: int
    ) -> list[tuple[str, int, str]]:
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise ValueError(str(error)) from error
        if path != "." and path not in self.files:
            raise PathError(f"no such file: {path}")
        suffix = glob.lstrip("*") if glob else ""
        return [
            (name, number, line)
            for name in ([path] if path != "." else sorted(self.files))
            if name.endswith(suffix)
            for number, line in enumerate(self.files[name].splitlines(), 1)
            if wanted.search(line)
        ][:max_matches]

    async def list(self, path: str) -> list[tuple[str, Literal["file", "dir", "other"], int]]:
        if path != ".":
            raise PathError(f"not a directory: {path}")
        return [(name, "file", len(text)) for name, text in sorted(self.files.items())]

    async def diff(self) -> Patch:
        names = sorted({*self.files, *self.pristine})
        changed = [name for name in names if self.files.get(name) != self.pristine.get(name)]
        return Patch(
            tuple(
                FileChange(
                    path=name,
                    content=self.files[name].encode() if name in self.files else None,
                    before=self.pristine[name].encode() if name in self.pristine else None,
                )
                for name in changed
            )
        )

    async def snapshot(self, into: Path) -> Snapshot:
        raise SandboxError("sandboxes in memory take no snapshots")

    async def stamp(self) -> str:
        return str(hash(tuple(sorted(self.files.items()))))

    async def close(self) -> None:
        """There is nothing to stop."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _ended(code: int, output: bytes, result: bytes = b"") -> ExecResult:
    return ExecResult(code, EndReason.EXIT, output, len(output), 0.0, 0, result)


def _admit(source: str) -> ast.Module:
    """The parsed module if it keeps to the family's small language. Raises SyntaxError."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, NODES):
            raise SyntaxError(f"{type(node).__name__} is not of the family")
        if isinstance(node, ast.Attribute) and node.attr not in METHODS:
            raise SyntaxError(f"{node.attr} is not of the family")
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > 10**6:
            raise SyntaxError("the number is too large")
    tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom)]
    return tree


def _scope(source: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    scope: dict[str, Any] = {**(given or {}), "__builtins__": BUILTINS | {"AssertionError": AssertionError}}
    exec(compile(_admit(source), "memory", "exec"), scope)
    return {name: value for name, value in scope.items() if name not in (given or {}) and name != "__builtins__"}


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Raises TooLong in the body once this process has used up so much. Main thread only."""

    def ring(*_: object) -> None:
        raise TooLong(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


class DirectClient:
    """The embedded engine's runner, stepped by the event loop that the episodes live on."""

    def __init__(self, policy_dir: Path, *, most: int = 2048) -> None:
        self.shape = DecoderShape.read(policy_dir)
        self.runner = Runner(EngineLimits(max_context=most))
        self._most = min(most, self.shape.max_position_embeddings)
        self._pump: asyncio.Task[None] | None = None

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Sample from these weights from now on."""
        built = Weights.build(self.shape, weights)
        if self.runner.decoder is None:
            decoder = Decoder(self.shape, built, self._most)
            self.runner.install(decoder, make_cache(decoder, self.runner.limits), version)
        else:
            self.runner.swap(built, version)

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        answer: asyncio.Future[GenerateResponse | ServerError] = asyncio.get_running_loop().create_future()
        self.runner.submit(Job(request, time.monotonic() + request.timeout_seconds, answer.set_result))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        result = await answer
        if isinstance(result, ServerError):
            raise InferenceError(str(result))
        return result

    async def _run(self) -> None:
        """Steps while there is work; between two steps every episode that got an answer goes on."""
        while self.runner.busy:
            self.runner.step()
            for _ in range(4):
                await asyncio.sleep(0)


def memory_run(policy_dir: Path, config: RLConfig, seed: int, scratch: Path) -> SyncRun:
    """A run of `rl_sync` without processes. `scratch` takes the weight store, which only a lagged reference reads."""
    policy = policies.load(policy_dir)
    store = WeightStore(scratch, dtype="float32")
    reference = build_reference(config, policy_dir, store)
    learner = build_learner(policy, config, seed=seed, reference=reference)
    environments = MemoryEnvironments()
    client = DirectClient(policy_dir, most=max(2048, config.sampling.max_context_tokens or 0))
    services = RolloutServices(
        client=client,
        renderer=policy.renderer,
        backend=MemoryBackend(environments),
        environments=environments,
        deployment=DEPLOYMENT,
        slots=asyncio.Semaphore(256),
    )

    async def update_engine(version: int) -> None:
        client.load(learner.weights(), version)

    with suppress(AttributeError):
        policy.model.config.use_cache = False
    return SyncRun(config, seed, policy, learner, reference, store, services, update_engine)
