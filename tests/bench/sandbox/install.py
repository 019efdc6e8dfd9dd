"""`make bench NAME=install LIST=dev`: unattended auto-install of a list of PyPI source distributions.

`LIST` is a name (`tests/bench/sandbox/lists/install-NAME.txt`) or a file of packages, one a line, `name`, `name==version` or with
`--hash=sha256:…`; without a version the newest is taken. Deterministic tier only. Shares are of the whole list:
`importable`: the package's top modules import in a fresh sandbox without network; `collected`: its tests are collected,
at most a fifth of their files failing to load; `mostly_passing`: at least 80 % of the tests that are not skipped pass;
`repeatable`: the environment was accepted and three fresh offline runs gave every test the same outcome; `yields_task`:
at least one task of it (a mutation, or a deleted feature) has all its controls green. A suite that takes longer than its
budget is judged by a sample, drawn by names; `sampled` counts such packages. Tests that differ between the repeats (two
at most, or 2 %) are set aside by name and three further repeats must agree; `set_aside` counts such packages. Each stage
has a deadline, longer by the load of each processor when the package begins, at most MAX_STRETCH times: a busy machine
does not fail good packages.

What a package came to is kept below `FOLDER` (or --folder), by the last commit that touched `sandbox/` or this file, so a
bench that was cut off goes on, also with another list; --fresh begins anew. Packages are measured in an order drawn by
their names, so with --minutes (no further package begins then) those measured are a fair part of the list; --kept sums up
what there is. One line a package, with the reason of what was discarded.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, SecretStr

from sandbox.backends.base import Backend, SandboxError
from sandbox.backends.choice import default_backend
from sandbox.errors import TaskError
from sandbox.generators.analysis.targets import Split
from sandbox.generators.building.yields import Yield
from sandbox.generators.registry import GeneratorName, generate_tasks
from sandbox.install.agent.conversation import Policy
from sandbox.install.agent.tier import install_by_agent
from sandbox.install.installer import install
from sandbox.install.recipes.base import Log
from sandbox.install.recipes.goals import SHARE
from sandbox.network import Upstreams, discover
from sandbox.packages.build import BuiltPackage
from sandbox.repositories import index
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.pins import Pin
from sandbox.repositories.sdist import from_archive
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.files import replace_file
from tests.bench import report
from trainer.inference.chat import Endpoint
from trainer.inference.installer import EndpointInstaller

LISTS = Path(__file__).parent / "lists"
FOLDER = Path(__file__).parents[3] / ".data" / "bench-install"
GOALS: dict[str, report.Goal] = {
    "importable": (">=", 0.95), "collected": (">=", 0.90), "mostly_passing": (">=", 0.80), "repeatable": (">=", 0.75),
    "yields_task": (">=", 0.65),
}  # fmt: skip
AT_ONCE = 2
PACKAGE_SECONDS = 720.0
"""All attempts of a package."""
STAGE_SECONDS = 360.0
"""Installing, or the final check, of one attempt."""
TASK_SECONDS = 240.0
MAX_STRETCH = 4.0
NOT_LOADED = 0.2
TASKS: tuple[tuple[GeneratorName, Split], ...] = (
    ("mutation", "train"),
    ("mutation", "held-out"),
    ("deletion", "train"),
)


class Outcome(BaseModel):
    """What became of one line of the list."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    line: str
    importable: bool = False
    collected: bool = False
    mostly_passing: bool = False
    repeatable: bool = False
    yields_task: bool = False
    minutes: float = 0.0
    """Until the environment was accepted or discarded; making a task is not in it."""
    reason: str = ""
    problem: str = ""
    tests: int = 0
    share: float = 0.0
    left_out: int = 0
    """Tests for which a sample of a long suite stands."""
    set_aside: int = 0
    """Tests left out by name, because they were not the same in every repeat; those of `repeatable` came after that."""
    task_minutes: float = 0.0
    attempts: int = 0
    agent: str = ""
    """What the agent tier made of it, where recipes failed and a policy was named: `installed` or the reason."""


def read_list(name: str) -> list[str]:
    """Lines of a list: name, name==version, or with hashes. Raises SystemExit."""
    path = LISTS / f"install-{name}.txt"
    path = path if path.is_file() else Path(name)
    if not path.is_file():
        raise SystemExit(f"LIST={name}: neither a list in {LISTS.name}/ nor a file")
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in path.read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(filter(None, lines)))


async def pin_of(line: str, upstreams: Upstreams) -> Pin:
    """Raises PackageError."""
    head, *rest = line.split()
    name, _, version = head.partition("==")
    hashes = tuple(word.removeprefix("--hash=sha256:") for word in rest if word.startswith("--hash=sha256:"))
    if version and hashes:
        return Pin(canonicalize_name(name), version, hashes)
    return await index.newest(name, upstreams, version=version)


async def one(
    line: str, store: EnvironmentStore, folder: Path, backend: Backend, upstreams: Upstreams, policy: Policy | None
) -> Outcome:
    """Install one package and make one task of it; whatever goes wrong is an outcome. Its log has the seconds."""
    began = time.monotonic()
    head = re.sub(r"[^\w.=+-]", "_", line.split()[0])
    with (folder / "logs" / f"{head}.log").open("w", encoding="utf-8") as file:

        def log(text: str) -> None:
            file.write(f"[{time.monotonic() - began:6.1f}] {text}\n")
            file.flush()

        slow = stretch()
        log(f"deadlines are {slow:.1f} times as long as on a quiet machine")
        try:
            async with asyncio.timeout(STAGE_SECONDS * slow):
                pin = await pin_of(line, upstreams)
                archive = await index.fetch(pin, folder / "downloads", upstreams)
                checkout = await asyncio.to_thread(
                    from_archive, archive, name=pin.name, version=pin.version, uploaded=index.uploaded(archive)
                )
            record = await install(
                store, checkout, backend=backend, upstreams=upstreams, log=log, seconds=PACKAGE_SECONDS * slow,
                stage_seconds=STAGE_SECONDS * slow,
            )  # fmt: skip
        except (TaskError, SandboxError, OSError, ValueError) as error:  # also TimeoutError: the source did not come
            log(traceback.format_exc())
            return Outcome(
                line=line, reason=str(getattr(error, "reason", type(error).__name__)), problem=str(error)[:500],
                minutes=round((time.monotonic() - began) / 60, 2),
            )  # fmt: skip
        minutes = record.seconds / 60  # as it was measured, also where a cut-off bench goes on
        found = record.evidence
        files = found.not_loaded + 1  # a suite of one file that does not load is no suite
        start = time.monotonic()
        yields = record.built is not None and await makes_task(store, record.built, backend, log, TASK_SECONDS * slow)
        task_minutes = (time.monotonic() - start) / 60
        asked = policy is not None and record.built is None
        agent = await by_agent(policy, checkout, store, backend, upstreams, log) if policy is not None and asked else ""
        return Outcome(
            line=line,
            importable=found.importable,
            collected=found.collected > 0 and found.not_loaded <= NOT_LOADED * (found.collected + files),
            mostly_passing=found.share >= SHARE,
            repeatable=record.built is not None and found.repeatable,
            yields_task=yields,
            minutes=round(minutes, 2),
            reason=str(record.reason or ""),
            problem=record.problem[:500],
            tests=found.collected,
            share=round(found.share, 3),
            left_out=found.left_out,
            set_aside=found.set_aside,
            task_minutes=round(task_minutes, 2),
            attempts=len(record.attempts),
            agent=agent,
        )


async def by_agent(
    policy: Policy, checkout: Checkout, store: EnvironmentStore, backend: Backend, upstreams: Upstreams, log: Log
) -> str:
    """`installed`, or the reason in a word: its gain is reported apart and enters no share."""
    try:
        async with asyncio.timeout(PACKAGE_SECONDS):
            record = await install_by_agent(store, checkout, policy, backend=backend, upstreams=upstreams, log=log)
    except TimeoutError:
        return "timeout"
    except (TaskError, SandboxError, OSError) as error:
        log(traceback.format_exc())
        return str(getattr(error, "reason", type(error).__name__))
    return "installed" if record.built is not None else str(record.reason)


def stretch() -> float:
    """How many times as long as on a quiet machine a stage may take."""
    return min(MAX_STRETCH, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


async def makes_task(store: EnvironmentStore, built: BuiltPackage, backend: Backend, log: Log, seconds: float) -> bool:
    """Whether a task of the package keeps all its controls: mutations of either split first, then deleted features."""
    try:
        async with asyncio.timeout(seconds):
            for generator, split in TASKS:
                found = Yield(generator=generator, package=built.name)
                async for task in generate_tasks(
                    store, built, backend=backend, generator=generator, split=split, count=1, found=found
                ):
                    log(f"task {task.id}")
                    return True
                log(f"no {generator} task for {split}: {found.model_dump_json(exclude_defaults=True)}")
    except TimeoutError:
        log(f"no task within {seconds:.0f} s")
    except (TaskError, SandboxError, SyntaxError, ValueError, OSError):
        log(traceback.format_exc())
    return False


def kept_at(folder: Path, line: str) -> Path:
    """Where the outcome of a line is kept, at this commit."""
    return folder / commit() / (re.sub(r"[^\w.=+-]", "_", line) + ".json")


@functools.cache
def commit() -> str:
    """The last one that touched what is measured, `+` if the work tree has changes there. Raises CalledProcessError."""
    parts = ["--", "sandbox", "tests/bench/sandbox/install.py"]

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words, *parts], text=True, cwd=Path(__file__).parents[3])

    return git("log", "-1", "--format=%h").strip() + "+" * bool(git("status", "--porcelain").strip())


async def measure(lines: list[str], options: argparse.Namespace, policy: Policy | None) -> list[Outcome]:
    """The outcomes of the lines that were measured, in the order of the list."""
    folder: Path = options.folder
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    (folder / commit()).mkdir(exist_ok=True)
    backend = default_backend()
    upstreams = (await asyncio.to_thread(discover)).model_copy(update={"kept_files": folder / "files"})
    slots = asyncio.Semaphore(options.at_once)
    end = time.monotonic() + 60 * options.minutes if options.minutes else math.inf

    async def kept(line: str) -> tuple[str, Outcome] | None:
        path = kept_at(folder, line)
        if path.is_file():
            return line, Outcome.model_validate_json(path.read_bytes())
        async with slots:
            if options.kept or time.monotonic() > end:
                return None
            # A store of its own: what one package leaves on disk is not needed for the next.
            own = folder / "work" / f"{commit()}-{path.stem}"[:120]
            outcome = await one(line, EnvironmentStore(own), folder, backend, upstreams, policy)
        replace_file(path, outcome.model_dump_json(indent=1))
        await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)
        show(outcome)
        return line, outcome

    drawn = sorted(lines, key=lambda line: hashlib.sha256(line.encode()).digest())
    try:
        found = dict(filter(None, await asyncio.gather(*map(kept, drawn))))
    finally:
        await backend.close()
    return [found[line] for line in lines if line in found]


def show(outcome: Outcome) -> None:
    words = [name for name in GOALS if getattr(outcome, name)]
    name = outcome.line.split()[0]
    why = f"  [{outcome.reason}] {outcome.problem[:160]}" if outcome.reason else ""
    sys.stdout.write(
        f"{name:32} {outcome.minutes:5.1f} min {outcome.tests:6} tests {outcome.share:6.1%}  {' '.join(words)}{why}\n"
    )
    sys.stdout.flush()


async def measured(lines: list[str], options: argparse.Namespace) -> list[Outcome]:
    if not options.agent:
        return await measure(lines, options, None)
    key = SecretStr(os.environ.get("OPENCOMPOSER_INSTALLER_KEY", ""))
    async with EndpointInstaller(Endpoint(url=options.agent, model=options.model, key=key)) as policy:
        return await measure(lines, options, policy)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench NAME=install", description=__doc__)
    parser.add_argument("--list", default=os.environ.get("LIST", "dev"), help="a name or a file of package names")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--fresh", action="store_true", help="forget what is kept")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--minutes", type=float, default=0.0, help="no further package begins after these")
    parser.add_argument("--kept", action="store_true", help="only what is kept already: a part of the list")
    parser.add_argument(
        "--agent", default="", help="base of an OpenAI-compatible endpoint for what recipes cannot install"
    )
    parser.add_argument("--model", default="", help="model to ask there")
    options = parser.parse_args()
    lines = read_list(options.list)
    if options.fresh:
        shutil.rmtree(options.folder, ignore_errors=True)
    outcomes = asyncio.run(measured(lines, options))
    if not outcomes:
        raise SystemExit("nothing was measured")
    reasons = Counter(outcome.reason for outcome in outcomes if outcome.reason)
    metrics = {name: round(sum(getattr(o, name) for o in outcomes) / len(outcomes), 3) for name in GOALS}
    metrics["minutes_p50"] = round(statistics.median(outcome.minutes for outcome in outcomes), 2)
    conditions: dict[str, object] = {
        "list": options.list,
        "packages": len(outcomes),
        "of": len(lines),
        "set_aside": sum(outcome.set_aside > 0 for outcome in outcomes),
        "sampled": sum(outcome.left_out > 0 for outcome in outcomes),
        "task_minutes_p50": round(statistics.median(outcome.task_minutes for outcome in outcomes), 2),
        "measured_at": commit(),
        "at_once": options.at_once,
        "discarded": dict(reasons),
    }
    if asked := Counter(outcome.agent for outcome in outcomes if outcome.agent):
        conditions |= {"agent": options.model, "agent_asked": asked.total(), "agent_installed": asked["installed"]}
    report.emit("install", metrics, goals=GOALS, conditions=conditions)


if __name__ == "__main__":
    main()
