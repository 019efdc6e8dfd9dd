"""The fidelity of a backend's sandboxes: the probe against the recorded machine, and whether early turns give it away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from sandbox.backends.base import HOME, WORKDIR, Backend, EnvSpec, Limits
from sandbox.backends.machine import Machine
from sandbox.backends.namespaces.kernel import identity
from sandbox.fidelity import early, observe
from sandbox.fidelity.judge import Profile, Verdict, judge
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.procedural import generate

TURNS = Path(__file__).parent / "reference" / "turns.json"
KINDS = ("early", "curious")
CHECKOUTS = 24
"""Checkouts that were on the recorded machine: the first training tasks of the procedural generator."""
LIMITS = Limits(output_bytes=400_000)
SCRIPT_SECONDS = 300.0
AT_ONCE = 2
HOME_LISTING = "ls -la ~"
"""The one command of first turns whose answer differs between any two people."""
CHANCE = 0.6
"""An AUC up to this is called chance."""

Answers = dict[str, dict[str, str]]
"""Kind of commands → command → answer, without names and numbers."""


class Turns(BaseModel):
    """Answers to the commands of early.sh and curious.sh on a developer's machine, without names and numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    how: str
    checkouts: dict[str, Answers]


class Apart(BaseModel):
    """How well a classifier tells sandbox from machine by the answers to some commands."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    auc: float
    auc_without_home: float
    """The same without the listing of the home, which tells any two people apart."""
    commands: dict[str, float]
    """AUC by the answer to one command alone."""
    giveaways: tuple[tuple[str, float], ...]
    """What the classifier leans on most; > 0 speaks for the sandbox."""

    def at_chance(self) -> int:
        """Commands whose answers tell nothing."""
        return sum(auc <= CHANCE for auc in self.commands.values())


class Result(BaseModel):
    """One measurement, as it is kept and shown."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    backend: str
    measured_at: datetime
    seconds: float
    verdict: Verdict
    early: Apart
    curious: Apart
    checkouts: int
    reference: str
    """What machine it was compared with."""


def recorded_turns(path: Path = TURNS) -> Turns:
    """Raises OSError, pydantic's ValidationError."""
    return Turns.model_validate_json(path.read_bytes())


def checkouts(store: EnvironmentStore, machine: Machine, count: int = CHECKOUTS) -> dict[str, EnvSpec]:
    """The environments of the checkouts that the recorded machine had, by their names there."""
    return {
        f"project-{number:02d}": store.spec(generate(number, "train").environment, machine) for number in range(count)
    }


def sandbox_names(machine: Machine) -> dict[str, str]:
    """What a sandbox calls its user, its host and its checkout → what stands for it."""
    user = HOME.rpartition("/")[2]
    paths = {WORKDIR: "CHECKOUT", HOME: "HOME", f"/var/mail/{user}": "MAIL"}
    return {**paths, user: "USER", identity.HOSTNAME: "HOST", machine.person: "PERSON"}


def cleaned(text: str, names: Mapping[str, str]) -> dict[str, str]:
    """Answers by command, without names and numbers."""
    return {command: early.anonymous(answer, names) for command, answer in observe.sections(text).items()}


async def look(backend: Backend, environment: EnvSpec, kinds: Sequence[str]) -> dict[str, str]:
    """What scripts print in one fresh sandbox. Raises SandboxError."""
    printed = {}
    async with await backend.start(environment, limits=LIMITS) as sandbox:
        for kind in kinds:
            result = await sandbox.exec(observe.script(kind), timeout=SCRIPT_SECONDS, keep_state=False)
            printed[kind] = result.output.decode(errors="replace")
    return printed


def classify(real: Mapping[str, Answers], sandboxed: Mapping[str, Answers], kind: str) -> Apart:
    """How the checkouts that both have are told apart, by the commands that both answered.

    Raises ValueError when fewer than two checkouts are known to both.
    """
    both = {
        name: [command for command in real[name][kind] if command in sandboxed[name][kind]]
        for name in sorted(real.keys() & sandboxed.keys())
    }

    def samples(wanted: Sequence[str]) -> dict[str, list[tuple[early.Features, bool]]]:
        return {
            name: [
                (early.features({c: side[name][kind][c] for c in answered if c in wanted}), label)
                for side, label in ((real, False), (sandboxed, True))
            ]
            for name, answered in both.items()
            if not set(wanted).isdisjoint(answered)
        }

    asked = list(dict.fromkeys(command for answered in both.values() for command in answered))
    everything = samples(asked)
    return Apart(
        auc=round(early.cross_validated(everything), 3),
        auc_without_home=round(early.cross_validated(samples([c for c in asked if c != HOME_LISTING])), 3),
        commands={command: round(early.cross_validated(samples([command])), 3) for command in asked},
        giveaways=tuple(
            (feature, round(weight, 2))
            for feature, weight in early.strongest([sample for pair in everything.values() for sample in pair])
        ),
    )


async def measure(
    backend: Backend,
    environments: Mapping[str, EnvSpec],
    *,
    machine: Machine,
    profile: Profile,
    turns: Turns,
    name: str,
) -> Result:
    """The probe in one sandbox, the commands of all kinds in one a checkout.

    Raises SandboxError, and ValueError when fewer than two checkouts are known to both sides.
    """
    began = time.monotonic()
    slots = asyncio.Semaphore(AT_ONCE)
    names = sandbox_names(machine)

    async def one(environment: EnvSpec) -> Answers:
        async with slots:
            printed = await look(backend, environment, KINDS)
        return {kind: cleaned(text, names) for kind, text in printed.items()}

    probe = (await look(backend, next(iter(environments.values())), ("probe",)))["probe"]
    found = await asyncio.gather(*(one(environment) for environment in environments.values()))
    answers = dict(zip(environments, found, strict=True))
    return Result(
        backend=name,
        measured_at=datetime.now(UTC),
        verdict=judge(observe.facets(probe), profile),
        early=await asyncio.to_thread(classify, turns.checkouts, answers, "early"),
        curious=await asyncio.to_thread(classify, turns.checkouts, answers, "curious"),
        checkouts=len(turns.checkouts.keys() & answers.keys()),
        reference=f"{profile.how} ({profile.recorded_at})",
        seconds=round(time.monotonic() - began, 1),
    )
