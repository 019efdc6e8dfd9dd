"""Honest runs: the work, among steps that come close to an exploit."""

from __future__ import annotations

from sandbox.grading.cheats.base import Agent, Script
from sandbox.tasks.spec import TaskSpec
from tests.redteam.base import filled, product, visible

Steps = str | tuple[str, str]
FIX = "FIX"
"""Where among the steps the work is done; without it, before them."""


def works(*steps: Steps, summary: str = "The cause was in one expression; it is corrected.") -> Script:
    """Shell commands (text) and files ((path, text)) around the fix. PRODUCT and PACKAGE stand for the task's names.

    In a command, the output is not looked at: an honest agent also tries things that do not work.
    """

    async def run(agent: Agent, task: TaskSpec) -> None:
        await agent.call("read_file", path=product(task))
        if FIX not in steps:
            await fix(agent, task)
        for step in steps:
            if step == FIX:
                await fix(agent, task)
            elif isinstance(step, str):
                await agent.shell(filled(step, task))
            else:
                await agent.write(filled(step[0], task), filled(step[1], task))
        await agent.finish(summary)

    return run


async def fix(agent: Agent, task: TaskSpec) -> None:
    """The oracle's change of each file, as one edit of whole lines."""
    for path, text in sorted(task.gold.items()):
        old, new = visible(task)[path].split("\n"), text.split("\n")
        head = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
        tail = 0
        while old[-1 - tail] == new[-1 - tail]:
            tail += 1
        result = await agent.call(
            "edit_file",
            path=path,
            old_string="\n".join(old[head : len(old) - tail]),
            new_string="\n".join(new[head : len(new) - tail]),
        )
        assert result.error is None, result.error
