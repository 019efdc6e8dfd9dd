"""Several test runs in one sandbox and from one loaded interpreter, each over different files: for measurements, never for a
verdict on submitted work.

Loading pytest takes most of a short run. Here it is loaded once, and each run is a process forked from that (a fresh
interpreter where loading pytest loaded something of the checkout). Files that a run changed are as they were for the next
one. What a test leaves elsewhere (in `/tmp`, say) stays, so what matters is repeated in other sandboxes and another order.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.backends.base import WORKDIR, EndReason, ExecResult, Sandbox
from sandbox.grading.adapters.base import (
    Invocation,
    Order,
    TestRun,
    json_lines,
    own_seconds,
    processor_seconds,
    read_report,
    wall_seconds,
)
from sandbox.grading.adapters.pytest import ENVIRONMENT, RUNNER, PytestAdapter

BATCH = (Path(__file__).parents[1] / "runners" / "batch.py").read_text(encoding="utf-8")
WORD_CHARS = 16
"""Length of the secret word that starts each record (`adapters/pytest.py`)."""


@dataclass(frozen=True, slots=True)
class Run:
    """Tests to run once these files (path below the checkout → text) are written."""

    files: Mapping[str, str]
    order: Order


async def collect_all(sandbox: Sandbox, runs: Sequence[Run], pristine: Mapping[str, str]) -> list[TestRun]:
    """What each run reports, in order. `pristine` has every file that some run writes, as the sandbox has it now.

    All runs have the interpreter of the first. Raises SandboxError.
    """
    adapter = PytestAdapter()
    invocations = [adapter.invoke(run.order) for run in runs]
    word = secrets.token_hex(WORD_CHARS // 2)
    request = {"word": word, "runner": RUNNER, "runs": _requests(runs, invocations, pristine)}
    command = f"cd {WORKDIR} && {ENVIRONMENT} exec {runs[0].order.python} -P -s -B -c {shlex.quote(BATCH)}"
    result = await sandbox.exec(
        command, stdin=json.dumps(request).encode(), timeout=sum(own_seconds(run.order) for run in runs),
        longest=sum(wall_seconds(run.order) for run in runs),
        private_result=True, keep_state=False,
    )  # fmt: skip
    return await asyncio.to_thread(_read, adapter, runs, invocations, word, result)


def _requests(
    runs: Sequence[Run], invocations: Sequence[Invocation], pristine: Mapping[str, str]
) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    before: Mapping[str, str] = {}
    for run, invocation in zip(runs, invocations, strict=True):
        restored = {path: pristine[path] for path in before}
        made.append(
            {
                "files": {**restored, **run.files},
                "request": invocation.stdin.decode(),
                "seconds": processor_seconds(run.order),
                "wall": wall_seconds(run.order),
            }
        )
        before = run.files
    return made


def _read(
    adapter: PytestAdapter, runs: Sequence[Run], invocations: Sequence[Invocation], word: str, result: ExecResult
) -> list[TestRun]:
    lines: dict[str, list[bytes]] = {}
    for line in result.result.split(b"\n"):
        lines.setdefault(line[:WORD_CHARS].decode("ascii", "replace"), []).append(line)
    endings: dict[int, int | None] = {}
    for _, record in json_lines(b"\n".join(lines.get(word, ())), word.encode()):
        if record is not None:
            endings[record["run"]] = record["status"]
    found = []
    for number, (run, invocation) in enumerate(zip(runs, invocations, strict=True)):
        # One that was stopped at its deadline ended by time; one that never ended shares the fate of the whole.
        ended = result.ended if number not in endings else EndReason.EXIT
        if number in endings and endings[number] is None:
            ended = EndReason.TIMEOUT
        own = dataclasses.replace(
            result, exit_code=endings.get(number), ended=ended, result=b"\n".join(lines.get(invocation.secret, ()))
        )
        found.append(read_report(adapter, run.order, invocation, own))
    return found
