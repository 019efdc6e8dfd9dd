"""Tasks and an expert for the bench `recipe`: the same effort helps on some tasks and is wasted on others.

* `easy`: a task of the procedural family whose instruction names the line and what it should be. One edit is enough.
* `hard`: the task as the family makes it: the fault has to be found, and an attempt that failed its test can be made again.
* `pair`: two named files hold a number each, and their sum is asked for. They can be read in two turns or in one.

The expert is thorough everywhere: it reads the test first, runs it after each edit, and reads one file a turn, mostly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sandbox.backends.base import Backend
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import ToolCall
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.procedural import TEST_COMMAND, Edit, Problem, problem
from sandbox.tasks.procedural.expert import Habits, choose_edit
from sandbox.tasks.procedural.vocabulary import Split
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec
from trainer.rollouts.record import opening_messages
from trainer.sft.expert_episodes import EpisodeTurn, ExpertEpisode

Kind = Literal["easy", "hard", "pair"]
KINDS: tuple[Kind, ...] = ("easy", "hard", "pair")
ANSWER = "answer.py"
LOOKS, CHECKS, RETRIES, PARALLEL = 0.7, 0.9, 0.95, 0.3
"""Shares of episodes that read the test first, of edits that are tested, of failed ones that are made again, and of pairs
read in one turn."""
ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Named:
    """An easy task: its problem, and the edit that its instruction names."""

    problem: Problem
    edit: Edit

    @property
    def task(self) -> TaskSpec:
        text = f"In {self.problem.module}, change `{self.edit.old}` to `{self.edit.new}`."
        spec = self.problem.spec
        return spec.model_copy(update={"id": f"named-{spec.id}", "instruction": text, "family": "named"})


def named(seed: int, split: Split) -> Named:
    """The first task from this seed on whose fault one edit mends."""
    while True:
        found = problem(seed, split)
        wanted = found.function.choices[found.fault]
        for edit in found.edits(found.current, found.fault):
            if edit.option == wanted:
                return Named(found, edit)
        seed += 500_000_000


def pair(seed: int, split: Split) -> tuple[TaskSpec, Sequence[str], Sequence[int]]:
    """A task as a pure function of its arguments, with its two files and their numbers. The splits share no file name."""
    rng = random.Random(f"pair:{split}:{seed}")
    files = [f"p{n}.py" for n in rng.sample([n for n in range(100, 1000) if (n % 7 < 4) == (split == "train")], 2)]
    numbers = [rng.randint(10, 99) for _ in files]
    empty = "def answer():\n    pass\n"
    found = " + ".join(map(str, numbers))
    task = TaskSpec(
        id=f"pair-{split}-{seed:06d}",
        source="procedural",
        instruction=f"Add what {files[0]} and {files[1]} hold. Answer in {ANSWER}.",
        environment=InlineEnvironment(
            files={**{name: f"value {number}\n" for name, number in zip(files, numbers, strict=True)}, ANSWER: empty}
        ),
        verifier=CallsVerifier(module=ANSWER, function="answer", cases=(("()", str(sum(numbers))),)),
        gold={ANSWER: empty.replace("pass", f"return {found}")},
        family="pair",
    )
    return task, files, numbers


def task_of(kind: Kind, seed: int, split: Split) -> TaskSpec:
    if kind == "pair":
        return pair(seed, split)[0]
    return named(seed, split).task if kind == "easy" else problem(seed, split).spec


class Demonstration:
    """One episode of the expert in a session of the product's harness."""

    def __init__(self, session: Session, rng: random.Random) -> None:
        self.session, self.rng = session, rng
        self.turns: list[EpisodeTurn] = []

    async def act(self, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        """One turn. What its calls returned."""
        made = [ToolCall(id=f"call_{n}", name=name, arguments=given) for n, (name, given) in enumerate(calls)]
        results = await self.session.run(made)
        self.turns.append(EpisodeTurn(calls=tuple(made), results=tuple(results)))
        return [result.output for result in results]

    async def easy(self, found: Named) -> None:
        module, edit = found.problem.module, found.edit
        await self._look(module)
        await self._edit(module, edit)
        if self.rng.random() < CHECKS:
            await self.act(("run_terminal_cmd", {"command": TEST_COMMAND}))
        await self.act(("finish", {}))

    async def hard(self, found: Problem) -> None:
        await self.act(("grep", {"pattern": f"def {found.function.name}"}))
        await self._look(found.module)
        current = dict(found.current)
        for _ in range(ATTEMPTS):
            edit = choose_edit(found, current, self.rng, Habits())
            await self._edit(found.module, edit)
            current[edit.slot] = edit.option
            if self.rng.random() >= CHECKS:
                break
            [outcome] = await self.act(("run_terminal_cmd", {"command": TEST_COMMAND}))
            if "failed" not in outcome or self.rng.random() >= RETRIES:
                break
        await self.act(("finish", {}))

    async def pair(self, files: Sequence[str], numbers: Sequence[int]) -> None:
        reads = [("read_file", {"path": name}) for name in files]
        if self.rng.random() < PARALLEL:
            await self.act(*reads)
        else:
            for read in reads:
                await self.act(read)
        new = f"return {numbers[0]} + {numbers[1]}"
        await self.act(("edit_file", {"path": ANSWER, "old_string": "pass", "new_string": new}))
        await self.act(("finish", {}))

    async def _look(self, module: str) -> None:
        if self.rng.random() < LOOKS:
            await self.act(("read_file", {"path": f"test_{module}"}))
        await self.act(("read_file", {"path": module}))

    async def _edit(self, module: str, edit: Edit) -> None:
        await self.act(("edit_file", {"path": module, "old_string": edit.old, "new_string": edit.new}))


async def demonstrate(kind: Kind, seed: int, backend: Backend, environments: EnvironmentStore) -> ExpertEpisode:
    """The expert's episode on a training task."""
    task = task_of(kind, seed, "train")
    async with await backend.start(environments.spec(task.environment)) as sandbox:
        shown = Demonstration(Session(sandbox, get_profile("toy")), random.Random(f"effort:{kind}:{seed}"))
        if kind == "pair":
            await shown.pair(*pair(seed, "train")[1:])
        elif kind == "easy":
            await shown.easy(named(seed, "train"))
        else:
            await shown.hard(problem(seed, "train"))
    return ExpertEpisode(
        task_id=task.id,
        bundle_hash=task.bundle_hash,
        profile="toy",
        messages=tuple({"role": m["role"], "content": m["content"]} for m in opening_messages(task)),
        turns=tuple(shown.turns),
    )
