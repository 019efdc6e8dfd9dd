"""A record and a task with something in every place."""

from sandbox.formats.record import Call, Opening, Record, Result, Step
from sandbox.tasks.spec import CallsVerifier, InlineEnvironment, PytestVerifier, TaskSpec

RECORD = Record(
    id="rollout-7",
    task="task-1",
    model="toy@3",
    opening=(Opening(role="system", content="Be good."), Opening(role="user", content="Fix é.")),
    steps=(
        Step(content="old", excluded=True),
        Step(
            content="",
            thinking="hm",
            seconds=1.5,
            prompt_token_ids=(1, 2, 3),
            completion_token_ids=(7, 8),
            logprobs=(-0.5, -0.25),
            calls=(
                Call(id="c1", name="read_file", arguments='{"path":  "a.py"}'),
                Call(id="c2", name="run", arguments="{oops"),
            ),
            results=(
                Result(call_id="c1", content="x = 1\n"),
                Result(call_id="c2", content="no JSON", error="malformed_call"),
            ),
        ),
        Step(content="done", completion_token_ids=(9,), prompt_token_ids=(1, 2, 3, 7, 8), logprobs=(-1.0,)),
    ),
    tools=(
        {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}},
    ),
    reward=1.0,
    verdict="passed",
    stop_reason="finished",
    patch="diff --git a/a.py b/a.py\n",
    seconds=3.25,
    extra={"sample": 2},
)

BROKEN = "def add(a, b):\n    return a - b\n"
GOLD = "def add(a, b):\n    return a + b\n"
TESTS = """import pytest
from add import add


@pytest.mark.parametrize("n", ["a b"])
def test_add(n):
    assert add(1, 2) == 3


def test_zero():
    assert add(0, 0) == 0
"""
TASK = TaskSpec(
    id="swe-add-1",
    source="swe-bench",
    instruction="Adding is wrong.\n",
    environment=InlineEnvironment(files={"add.py": BROKEN, "README.md": "# add\n"}),
    verifier=PytestVerifier(
        test_files={"tests/test_add.py": TESTS},
        fail_to_pass=("tests/test_add.py::test_add[a b]",),
        pass_to_pass=("tests/test_add.py::test_zero",),
        timeout_seconds=1800.0,
    ),
    gold={"add.py": GOLD},
    protected=("tests/test_add.py",),
    family="local/add@abc",
)
CALLS = TASK.model_copy(
    update={"id": "add-2", "verifier": CallsVerifier(module="add.py", function="add", cases=(("(1, 2)", "3"),))}
)
