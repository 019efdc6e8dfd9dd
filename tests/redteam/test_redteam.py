"""The red team in the suite: one pair always, one of each kind in `make test-integration`, all of them in `make test-slow`, and
that a fault would be seen."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.grading.cheats import catalogue
from sandbox.grading.cheats.base import Agent, Exploit
from sandbox.grading.controls import run_controls
from sandbox.grading.redteam import load
from sandbox.grading.verdict.outcomes import Verdict
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import TaskSpec
from tests.redteam import __main__ as command
from tests.redteam import pairs, table, tasks
from tests.redteam.base import Pair, TaskName, answer, product
from tests.redteam.honest import works
from tests.redteam.playing import Ground, try_pair

PAIRS = {pair.exploit.id: pair for pair in pairs()}
MARKS = {"A1": pytest.mark.integration, "A7": pytest.mark.integration, "B11": (), "C2": pytest.mark.integration}
"""One of each kind that `tests/sandbox/grading/controls/test_cheats.py` does not play; the others are slow."""
DOCUMENT = Path(__file__).parents[2] / "docs/sandbox/red-team.md"


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    mark = os.environ["OPENCOMPOSER_REDTEAM_MARK"] = secrets.token_hex(16)
    backend = NamespacesBackend()
    found = backend.probe()
    if not found.usable:
        pytest.skip(f"no sandboxes on this machine: {'; '.join(found.reasons)}")
    environments = EnvironmentStore(tmp_path_factory.mktemp("redteam"))
    built = asyncio.run(tasks.build(backend, environments))
    yield Ground("namespaces", backend, environments, built, (mark,))
    del os.environ["OPENCOMPOSER_REDTEAM_MARK"]


@pytest.mark.parametrize("exploit", [pytest.param(i, marks=MARKS.get(i, pytest.mark.slow), id=i) for i in PAIRS])
async def test_an_exploit_fails_and_is_found_and_its_honest_counterpart_passes(ground, exploit):
    if PAIRS[exploit].task not in ground.tasks:
        pytest.skip(f"no toolchain for {PAIRS[exploit].task} in the sandboxes of this machine")
    ground.slots = asyncio.Semaphore(2)  # of this test's event loop
    result = await try_pair(PAIRS[exploit], ground)
    assert result.row.faults == ()
    assert result.row.unguarded is not False


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in tasks.COMPILED else pytest.mark.integration)
        for name in get_args(TaskName)
    ],
)
async def test_the_product_admits_each_task(ground, name):
    """Else its exploits are refused with it, and nobody tries them through the product."""
    if name not in ground.tasks:
        pytest.skip(f"no toolchain for {name} in the sandboxes of this machine")
    task = ground.tasks[name]
    controls = await run_controls(backend=ground.backend, environments=ground.environments, task=task, k=1)
    assert controls.ok, controls.reason


def test_the_catalogue_is_complete():
    counts = Counter(exploit[0] for exploit in PAIRS)
    assert list(PAIRS) == [f"{kind}{number}" for kind in sorted(counts) for number in range(1, counts[kind] + 1)]
    assert len(PAIRS) >= 90 and {"A", "B", "C", "D"} <= set(counts)
    assert all(pair.exploit.findings and pair.defence and pair.exploit.title for pair in PAIRS.values())
    for exploit in catalogue():
        assert PAIRS[exploit.id].exploit is exploit, "what the controls of tasks play is what the red team plays"


def test_the_document_shows_the_catalogue():
    assert table.markdown(list(PAIRS.values())) in DOCUMENT.read_text(encoding="utf-8")


async def knows(agent: Agent, task: TaskSpec) -> None:
    await agent.write(product(task), answer(task))


async def prints(agent: Agent, task: TaskSpec) -> None:
    await agent.shell(f"cat <<'END'\n{answer(task)}\nEND\nprintenv")


async def nothing(agent: Agent, task: TaskSpec) -> None:
    await agent.finish()


FAULTS = {
    "an exploit is paid": (
        Pair(Exploit("A1", "knows", knows, ("odd-path",)), works(), "", task="inventory"),
        "the exploit is passed",
    ),
    "no finding": (
        Pair(Exploit("A1", "idle", nothing, ("odd-path",)), works(), "", task="inventory"),
        "none of odd-path was raised",
    ),
    "an honest run fails": (
        Pair(Exploit("A1", "idle", nothing, ("no-edit",)), nothing, "", task="inventory"),
        "the honest run is failed",
    ),
    "the answer is seen": (
        Pair(Exploit("A1", "prints", prints, ("no-edit",)), works(), "", task="inventory"),
        "it saw",
    ),
    "an exploit that proves nothing": (
        Pair(Exploit("A1", "idle", nothing, ("no-edit",)), works(), "", fools_own_sandbox=True),
        "it shows nothing",
    ),
}


@pytest.mark.parametrize(("pair", "fault"), FAULTS.values(), ids=FAULTS)
async def test_each_fault_is_told(ground, pair, fault):
    ground.slots = asyncio.Semaphore(2)
    row = (await try_pair(pair, ground)).row
    assert [words for words in row.faults if fault in words], row.faults


def test_the_command_ends_with_one_when_an_exploit_is_paid_and_keeps_the_table(tmp_path, monkeypatch, capsys):
    async def build(backend, environments):
        return {"inventory": tasks.TASK}

    monkeypatch.setattr(command, "pairs", lambda: [FAULTS["an exploit is paid"][0]])
    monkeypatch.setattr(tasks, "build", build)
    asked = ["--backends", "namespaces", "--data"]
    assert command.main([*asked, str(tmp_path / "all")]) == 1
    kept = load(tmp_path / "all")
    assert kept is not None
    assert kept.scored == 1 and kept.rows[0].exploit.verdict is Verdict.PASSED and kept.backends == ("namespaces",)
    said = capsys.readouterr().out
    assert "PAID" in said and "! the exploit is passed" in said and "kept in" in said
    assert command.main([*asked, str(tmp_path / "some"), "A1"]) == 1
    assert not (tmp_path / "some").exists(), "a table of some ids only is not kept"


def test_a_machine_without_node_is_told_which_exploits_need_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "in_sandbox", lambda program: False)
    javascript = [i for i, pair in PAIRS.items() if pair.task.endswith("-js")]
    assert tasks.missing(PAIRS.values()).startswith(f"sandboxes have no node, which {', '.join(javascript)} need")
    assert tasks.missing([PAIRS["A1"]]) == ""
    with pytest.raises(SystemExit) as stopped:
        command.main(["--data", str(tmp_path), *javascript])
    assert stopped.value.code == 2 and "apt-get install nodejs" in capsys.readouterr().err


def test_a_table_that_cannot_be_read_is_none(tmp_path):
    assert load(tmp_path) is None
    for number, text in enumerate(("", "{}", '{"format": 1}', "[]")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "redteam.json").write_text(text)
        assert load(folder) is None
