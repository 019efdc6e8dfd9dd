"""The scripted expert: its repairs of bundles, its share of right edits, and its server, played in a real sandbox."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox.backends.choice import default_backend
from sandbox.grading.grader import grade
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import ToolCall
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.procedural import generate
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, TaskSpec
from scripts.study.expert.repair import enclosing, fixes, guess, script
from scripts.study.expert.script import Expert
from scripts.study.expert.server import ExpertServer

RIGHT, WRONG = Expert(accuracy=1.0), Expert(accuracy=0.0)
GOLD = """\
LIMIT = 3


def clamp(value):
    if value > LIMIT:
        value = LIMIT
    return value


def total(values):
    found = 0
    for value in values:
        found = found + clamp(value)
    return found
"""


def bug(broken: str, *, gold: str = GOLD) -> TaskSpec:
    """A task as mutation makes them, small enough to be inline."""
    return TaskSpec(
        id="bug-1",
        source="mutation",
        instruction="`total([1, 9])` returns a wrong sum.",
        environment=InlineEnvironment(files={"sums.py": broken}),
        verifier=CallsVerifier(module="sums.py", function="total", cases=(("([1, 9],)", "4"),)),
        gold={"sums.py": gold},
    )


SWAPPED = bug(GOLD.replace("found + clamp", "found - clamp"))
BROKEN = {
    "a swapped operator": SWAPPED,
    "a lost line": bug(GOLD.replace("        value = LIMIT\n", "        pass\n")),
    "a lost branch": bug(GOLD.replace("    if value > LIMIT:\n        value = LIMIT\n", "")),
    "an added line": bug(GOLD.replace("    found = 0\n", "    found = 0\n    values = values[:1]\n")),
    "two places": bug(GOLD.replace("value > LIMIT", "value >= LIMIT").replace("LIMIT = 3", "LIMIT = 4", 1)),
    "text that an edit repeats": bug(
        GOLD + GOLD[11:], gold=GOLD + GOLD[11:].replace("found = 0", "found = 1") + GOLD[11:]
    ),
    "an empty file": bug(""),
    "a long file without a line of it": bug(GOLD + "x = 1\n" * 70, gold=GOLD + "y = 2\n" * 70),
}


UNPLAYED = ("an empty file", "a long file without a line of it")


def repaired(task: TaskSpec) -> str:
    """The file after the expert's edits, each of text that occurs once, as `edit_file` demands."""
    assert isinstance(task.environment, InlineEnvironment)
    text = task.environment.files["sums.py"]
    for edit in fixes(task):
        assert text.count(edit.old) == 1, edit
        text = text.replace(edit.old, edit.new)
    return text


@pytest.mark.parametrize("name", sorted(name for name in BROKEN if name not in UNPLAYED))
def test_the_edits_give_the_oracles_file(name: str) -> None:
    assert repaired(BROKEN[name]) == BROKEN[name].gold["sums.py"]


@pytest.mark.parametrize("name", UNPLAYED)
def test_a_patch_that_no_edit_makes_is_not_played(name: str) -> None:
    assert fixes(BROKEN[name]) == []
    with pytest.raises(ValueError, match="no edit makes the oracle's patch of bug-1"):
        ExpertServer([BROKEN[name]], RIGHT)


def test_a_guess_changes_the_same_lines_and_is_not_the_fix() -> None:
    (edit,) = fixes(SWAPPED)
    for seed in range(20):
        made = guess(edit, Expert(accuracy=0, seed=seed).rng("x"))
        assert made is not None
        assert made.new not in (edit.new, edit.old)
        assert made.old == edit.old
    assert enclosing(GOLD, edit.line) == "total"
    assert enclosing(GOLD, 1) == ""


async def played(task: TaskSpec, server: ExpertServer, folder: Path) -> tuple[list[str], Verdict]:
    """The tools that a policy behind this endpoint calls in a real sandbox, and the verdict on its work."""
    store, backend = EnvironmentStore(folder), default_backend()
    profile = get_profile("full")
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": task.instruction}]
    names: list[str] = []
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {server.key}"}, trust_env=False) as http:
        async with await backend.start(store.spec(task.environment)) as sandbox:
            session = Session(sandbox, profile)
            while "finish" not in names and len(names) < 20:
                answer = await http.post(f"{server.url}/chat/completions", json={"model": "m", "messages": messages})
                message = answer.raise_for_status().json()["choices"][0]["message"]
                (one,) = message["tool_calls"]
                function = one["function"]
                arguments = json.loads(function["arguments"])
                (result,) = await session.run([ToolCall(id=one["id"], name=function["name"], arguments=arguments)])
                assert result.error is None, result
                names.append(function["name"])
                messages += [message, {"role": "tool", "content": result.output, "tool_call_id": one["id"]}]
            patch = await sandbox.diff()
    report = await grade(backend=backend, environments=store, task=task, patch=patch)
    return names, report.verdict


@pytest.mark.parametrize(("expert", "verdict"), [(RIGHT, Verdict.PASSED), (WRONG, Verdict.FAILED)])
def test_it_repairs_a_package_or_not(expert: Expert, verdict: Verdict, tmp_path: Path) -> None:
    with ExpertServer([SWAPPED], expert) as server:
        names, found = asyncio.run(played(SWAPPED, server, tmp_path))
    assert names == ["grep", "read_file", "edit_file", "finish"]
    assert found == verdict


def test_it_plays_the_procedural_family(tmp_path: Path) -> None:
    task = generate(7, "train")
    with ExpertServer([task], RIGHT) as server:
        names, verdict = asyncio.run(played(task, server, tmp_path))
    assert names[:3] == ["grep", "read_file", "edit_file"]
    assert names[-1] == "finish"
    assert verdict == Verdict.PASSED


def test_accuracy_is_the_share_of_right_repairs() -> None:
    tasks = [SWAPPED.model_copy(update={"id": f"bug-{number}"}) for number in range(200)]
    (edit,) = fixes(SWAPPED)
    shares = []
    for accuracy in (0.2, 0.8):
        edits = [script(task, Expert(accuracy=accuracy))(["", ""]) for task in tasks]
        shares.append(sum(call.arguments["new_string"] == edit.new for call in edits) / len(edits))
    assert abs(shares[0] - 0.2) < 0.1
    assert abs(shares[1] - 0.8) < 0.1


@pytest.mark.parametrize(
    ("body", "key", "path", "status"),
    [
        (b'{"messages": []}', "", "/v1/chat/completions", 400),
        (b"not json", "", "/v1/chat/completions", 400),
        (b'{"messages": [{"role": "user", "content": "another task"}]}', "", "/v1/chat/completions", 400),
        (b'{"messages": []}', "wrong", "/v1/chat/completions", 401),
        (b'{"messages": []}', "", "/v1/models", 404),
        (b"", "", "/v1/chat/completions", 413),
    ],
)
def test_the_server_refuses_with_a_reason(body: bytes, key: str, path: str, status: int) -> None:
    with ExpertServer([SWAPPED], RIGHT) as server:
        headers = {"Authorization": f"Bearer {key or server.key}"}
        address = server.url.removesuffix("/v1") + path
        answer = httpx.post(address, content=body, headers=headers, trust_env=False)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
