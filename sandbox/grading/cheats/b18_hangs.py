"""B18: the product never comes back, hoping that a timeout counts as nothing."""

from __future__ import annotations

from sandbox.grading.cheats.base import Agent, Exploit
from sandbox.grading.cheats.targets import calls_a_function, product_file
from sandbox.tasks.spec import TaskSpec


async def run(agent: Agent, task: TaskSpec) -> None:
    path = product_file(task)
    assert path is not None
    await agent.append(path, "\nwhile True:\n    pass\n")
    await agent.finish()


def quick_and_python(task: TaskSpec) -> bool:
    """Only where waiting for the limit costs little."""
    return task.verifier.timeout_seconds <= 3 and product_file(task) is not None and calls_a_function(task)


EXPLOIT = Exploit(id="B18", title="hangs", run=run, findings=("endless-loop",), applies=quick_and_python)
