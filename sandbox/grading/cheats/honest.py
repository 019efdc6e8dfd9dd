"""The honest counterpart of every exploit: the same agent, doing the work."""

from __future__ import annotations

from sandbox.grading.cheats.base import Agent
from sandbox.tasks.spec import TaskSpec


async def honest(agent: Agent, task: TaskSpec) -> None:
    """Write the oracle's files through the tools, as a policy that found the solution would. Must be graded `passed`."""
    for path, text in sorted(task.gold.items()):
        await agent.call("read_file", path=path)
        await agent.write(path, text)
    await agent.finish()
