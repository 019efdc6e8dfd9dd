"""What the learning benches stand on: sandboxes in memory that judge as real ones do, and a family that outgrows its window."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.backends.base import FileChange, Patch
from sandbox.grading.grader import grade
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import ToolCall
from sandbox.tasks.procedural import generate
from tests.bench.runs.memory import MemoryBackend, MemoryEnvironments
from tests.bench.runs.relay import Expert
from tests.bench.runs.summaries import TRIGGER, config
from tests.bench.runs.summaries import task as task_of
from tests.trainer.stages.memory import BASE_POLICY
from trainer import policy as policies
from trainer.config import RewardConfig
from trainer.rollouts.episode import RolloutServices, run_episode
from trainer.rollouts.turns import EpisodeSettings
from trainer.types import Trajectory


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (None, Verdict.PASSED),
        ("", Verdict.FAILED),
        ("import os\n", Verdict.FAILED),
        ("def {name}(*given):\n    while_ = 9 ** 9\n", Verdict.FAILED),
        ("def {name}(*given):\n    for x in range(1000000000):\n        pass\n", Verdict.FAILED),
    ],
)
async def test_patches_are_judged_and_other_code_is_not_let_in(body: str | None, verdict: Verdict) -> None:
    task = generate(5, "train")
    environments = MemoryEnvironments()
    (module, gold), *_ = task.gold.items()
    assert task.verifier.kind == "calls"
    text = gold if body is None else body.replace("{name}", task.verifier.function)
    patch = Patch((FileChange(module, text.encode(), before=b""),))
    report = await grade(backend=MemoryBackend(environments), environments=environments, task=task, patch=patch)
    assert report.verdict is verdict


async def test_the_visible_test_says_what_run_tests_says() -> None:
    task = generate(5, "train")
    environments = MemoryEnvironments()
    sandbox = await MemoryBackend(environments).start(environments.spec(task.environment))
    session = Session(sandbox, get_profile("toy"))
    run = ToolCall(id="c", name="run_terminal_cmd", arguments={"command": "python run_tests.py"})
    (failing,) = await session.run([run])
    assert failing.output.startswith("1 failed: got ") and failing.output.endswith("exit code 1")
    for path, text in task.gold.items():
        await sandbox.write(path, text.encode())
    (passing,) = await session.run([run])
    assert passing.output == "1 passed\nexit code 0"


def play(keep: float, mode: str, count: int = 4, window: int = TRIGGER) -> list[Trajectory]:
    renderer = policies.make_renderer(policies.load_tokenizer(BASE_POLICY))
    environments = MemoryEnvironments()
    assert mode in ("summary", "truncate")
    settings = config(mode, window)
    services = RolloutServices(
        client=Expert(renderer, keep=keep), renderer=renderer, backend=MemoryBackend(environments),
        environments=environments, deployment="policy", slots=asyncio.Semaphore(4),
    )  # fmt: skip

    async def all_of_them() -> list[Trajectory]:
        chosen = EpisodeSettings(settings.sampling, settings.harness, RewardConfig())
        return [
            await run_episode(
                task=task_of(n, "train", window),
                sample=0,
                session_id=str(n),
                seed=n,
                settings=chosen,
                services=services,
            )
            for n in range(count)
        ]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("window", [TRIGGER, 4096])
def test_work_of_five_windows_is_done_with_summaries_and_forgotten_without(window: int) -> None:
    count = 4 if window == TRIGGER else 2
    kept = play(1.0, "summary", count, window)
    assert [t.reward for t in kept] == [1.0] * count
    renderer = policies.make_renderer(policies.load_tokenizer(BASE_POLICY))
    for t in kept:
        said = [turn for turn in t.turns if not turn.summary]
        tokens = sum(turn.token_end - turn.token_start + len(renderer.observe(turn.results)) for turn in said)
        opening = len(renderer.start(list(t.messages)))
        assert opening + tokens > 5 * window and len(t.segments) >= 5, (opening, tokens)
    assert sum(t.reward or 0.0 for t in play(1.0, "truncate", count, window)) == 0.0
    assert sum(t.reward or 0.0 for t in play(0.0, "summary", count, window)) == 0.0
