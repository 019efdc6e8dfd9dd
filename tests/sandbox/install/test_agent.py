"""The agent tier end to end: a server of the OpenAI shape that answers by a script, real sandboxes, a real registry."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from sandbox.install.agent.conversation import PolicyFailed
from sandbox.install.agent.tier import SaidGoals, SaidInstall, install_by_agent
from sandbox.install.installer import install
from sandbox.install.recipes.errors import InstallFailed, Reason
from sandbox.network import Upstream, Upstreams
from sandbox.repositories.checkout import Checkout
from sandbox.repositories.history import TreeFile
from tests.chat_server import ChatServer, Model, Reply, completion, said
from tests.sandbox.install.test_installer import PRODUCT
from tests.sandbox.install.tools import TOOLS, packed
from tests.sandbox.network.local_registry import LocalRegistry
from trainer.inference.chat import Endpoint
from trainer.inference.installer import EndpointInstaller

FILES = {
    "README.md": "# counting\n\nRun the checks with `pytest checks/verify.py`.\n",
    "lib/counting.py": PRODUCT,
    "checks/verify.py": "from counting import steps, total\n\n\ndef test_steps():\n    assert steps(0, 2) == [0, 1]\n\n\n"
    "def test_total():\n    assert total([1, 2]) == 3\n",
}
"""Nothing says how to install it, and no test file has a usual name."""
SUITE = "python -m pytest -q checks/verify.py"
GOALS = [
    {"kind": "suite", "command": SUITE, "description": "all checks pass", "expect": {"passed_share": 0.9}},
    {"kind": "tests", "command": f"{SUITE}::test_steps", "description": "one passes", "expect": {"pattern": "1 passed"}},
    *(
        {"kind": "run", "command": f"python -c 'import counting; print(counting.total(range({n})))'",
         "description": "the sum", "expect": {"pattern": str(sum(range(n)))}}
        for n in range(3, 11)
    ),
]  # fmt: skip
SET_UP = (
    "uv venv -q ~/.venv --python python3 && uv pip install -q --python ~/.venv pytest && "
    "echo ~/repo/lib > ~/.venv/lib/python3.11/site-packages/counting.pth"
)
DONE = {
    "framework": "pytest", "tests": ["checks/verify.py"], "python": "/home/dev/.venv/bin/python3", "modules": ["counting"],
    "source_roots": ["lib"], "arguments": ["-o", "pythonpath=lib"], "test_command": SUITE,
    "env": {"PATH": "/home/dev/.venv/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
}  # fmt: skip


def checkout() -> Checkout:
    return Checkout("counting", "1.5", {path: TreeFile(text.encode()) for path, text in FILES.items()})


def writing(answer: object) -> str:
    return f"printf %s {shlex.quote(json.dumps(answer))} > /tmp/answer.json"


def engineer(goals: object = {"goals": GOALS}, done: object = DONE) -> Model:
    """Looks around, writes goals in the one conversation and installs in the other."""

    def model(request: dict[str, Any]) -> Reply:
        answers, task = said(request, "tool"), said(request, "user")[0]
        if not answers:
            return completion(
                request, "Let me look.", [("read_file", {"path": "README.md"}), ("list_dir", {"path": "."})]
            )
        commands = [writing(goals)] if "ten commands" in task else [SET_UP, writing(done)]
        if len(answers) < 2 + len(commands):
            return completion(request, "", [("run_terminal_cmd", {"command": commands[len(answers) - 2]})])
        return completion(request, "", [("finish", {"summary": "done"})])

    return model


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_what_the_recipes_cannot_install_a_policy_does(backend, environments):
    log: list[str] = []
    async with LocalRegistry() as registry:
        for name in TOOLS:
            registry.add(name, *packed(name))
        upstreams = Upstreams(python=(Upstream.of(registry.index),))
        plain = await install(environments, checkout(), backend=backend, upstreams=upstreams, log=log.append)
        assert plain.built is None and plain.reason == Reason.NO_TESTS
        with ChatServer(engineer(), key="k-secret") as server:
            endpoint = Endpoint(url=server.url, model="engineer", key="k-secret")
            async with EndpointInstaller(endpoint) as policy:
                record = await install_by_agent(
                    environments, checkout(), policy, backend=backend, upstreams=upstreams, log=log.append
                )
    assert record.built is not None, (record.problem, log[-30:])
    assert set(record.built.tests) == {"checks/verify.py::test_steps", "checks/verify.py::test_total"}
    assert (record.language, record.goals.by, record.attempts[0].tier) == ("agent engineer",) * 3
    assert (record.evidence.repeatable, record.evidence.unseen_met, record.evidence.repeats) == (True, 7, 3)
    assert record.provenance["agent"].startswith("engineer: 7 turns")
    # The two conversations know nothing of each other: the installer was shown three goals, the suite's not among them.
    told = [said(request, "user")[0] for request in server.requests if "ten commands" not in said(request, "user")[0]]
    assert told and all(sum(f"`{goal['command']}`" in text for goal in GOALS) == 3 for text in told)
    assert "k-secret" not in "".join(log) + record.model_dump_json()
    tools = {tool["function"]["name"] for tool in server.requests[0]["tools"]}
    assert {"run_terminal_cmd", "finish"} <= tools


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (engineer(goals={"goals": GOALS[:4]}), "wrote goals with goals: List should have at least 10"),
        (engineer(goals={"goals": [*GOALS[1:], GOALS[1]]}), "one goal must be of kind suite"),
        (lambda request: completion(request, "I would rather not."), "left no readable answer"),
    ],
)
async def test_goals_that_are_none(backend, environments, model, why):
    with ChatServer(model) as server:
        async with EndpointInstaller(Endpoint(url=server.url, model="lazy")) as policy:
            with pytest.raises(InstallFailed, match=why) as error:
                await install_by_agent(
                    environments, checkout(), policy, backend=backend, upstreams=Upstreams(), log=lambda line: None
                )
    assert error.value.reason == Reason.GOALS


async def test_an_endpoint_that_refuses_says_nothing_about_the_checkout(backend, environments):
    with ChatServer(engineer(), key="right") as server:
        async with EndpointInstaller(Endpoint(url=server.url, model="closed", key="wrong")) as policy:
            with pytest.raises(PolicyFailed, match="closed gave no answer") as error:
                await install_by_agent(
                    environments, checkout(), policy, backend=backend, upstreams=Upstreams(), log=lambda line: None
                )
    assert "wrong" not in str(error.value).replace("wrong key", "")


@pytest.mark.parametrize(
    "change",
    [
        {"tests": ["../../etc"]},
        {"tests": ["-p", "x"]},
        {"python": "python3; id"},
        {"framework": "make"},
        {"env": {"A B": "x"}},
    ],
)
def test_answers_that_are_refused(change):
    SaidInstall.model_validate(DONE)
    SaidGoals.model_validate({"goals": GOALS})
    with pytest.raises(ValueError):
        SaidInstall.model_validate(DONE | change)
