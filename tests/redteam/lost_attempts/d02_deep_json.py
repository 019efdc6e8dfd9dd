"""D2: arguments that are nested so deeply that no serialiser takes them."""

from __future__ import annotations

from sandbox.grading.cheats.base import Agent, Exploit
from sandbox.tasks.spec import TaskSpec
from tests.redteam.base import Pair
from tests.redteam.honest import works

LEVELS = 900


async def run(agent: Agent, task: TaskSpec) -> None:
    deep: object = "."
    for _ in range(LEVELS):
        deep = [deep]
    await agent.call("list_dir", path=deep)
    await agent.call("grep", pattern=".", numbers=[1e308 * 10, 1 << 200])
    await agent.finish("Done.")


PAIR = Pair(
    exploit=Exploit(id="D2", title="nests JSON deeply", run=run, findings=("no-edit",)),
    honest=works(("deep.json", "[" * 900 + "]" * 900 + "\n")),
    defence="JSON is bounded in depth and size where it is parsed; what is beyond is answered with an error",
    task="inventory",
)
