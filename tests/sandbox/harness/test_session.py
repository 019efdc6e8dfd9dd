import asyncio
import time

import pytest

from sandbox.harness.errors import HarnessFailure
from sandbox.harness.profile import Profile, get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import ToolCall, ToolErrorKind


def calls(*items):
    return [ToolCall(id=str(index), name=name, arguments=arguments) for index, (name, arguments) in enumerate(items)]


async def test_results_come_in_call_order_with_their_ids(session):
    results = await session.run(
        calls(("read_file", {"path": "pkg/util.py"}), ("nope", {}), ("grep", {"pattern": "LIMIT"}), ("list_dir", {}))
    )
    assert [r.call_id for r in results] == ["0", "1", "2", "3"]
    assert [r.error.kind if r.error else None for r in results] == [None, ToolErrorKind.UNKNOWN_TOOL, None, None]
    assert all(r.seconds >= 0 for r in results)


async def test_faults_of_the_policy_are_results(session):
    results = await session.run(
        calls(
            ("frobnicate", {}),
            ("read_file", {}),
            ("read_file", {"path": "a", "colour": 1}),
            ("read_file", {"path": ["a"]}),
            ("read_file", {"path": "totals.py", "offset": 0}),
            ("run_terminal_cmd", {"command": "a\0b"}),
            ("run_terminal_cmd", {"command": "echo \ud800"}),
            ("read_file", {"path": "\ud800"}),
        )
    )
    assert results[0].output.startswith("error: no tool frobnicate; tools: read_file, ")
    assert results[1].output == "error: read_file: path: Field required"
    assert results[2].output == "error: read_file: colour: Extra inputs are not permitted"
    assert [r.error.kind for r in results[1:]] == [ToolErrorKind.INVALID_ARGUMENTS] * 7


async def test_a_profile_offers_only_its_tools(sandbox):
    session = Session(sandbox, Profile("small", tools=("read_file",)))
    (result,) = await session.run(calls(("run_terminal_cmd", {"command": "id"})))
    assert result.error.kind is ToolErrorKind.UNKNOWN_TOOL
    assert [s["function"]["name"] for s in session.schemas()] == ["read_file"]


async def test_edits_of_one_file_keep_their_order(session, sandbox):
    await sandbox.write("n.txt", b"0\n")
    edits = [("edit_file", {"path": p, "old_string": f"{n}\n", "new_string": f"{n + 1}\n"})
             for n, p in enumerate(["n.txt", "./n.txt", "pkg/../n.txt"] * 4)]  # fmt: skip
    results = await session.run(calls(*edits, ("read_file", {"path": "n.txt"})))
    assert [r.output for r in results[:-1]] == ["edited n.txt:1"] * 12
    assert results[-1].output == "1|12"


async def test_a_command_sees_the_edits_before_it_and_not_those_after(session):
    results = await session.run(
        calls(
            ("write_file", {"path": "a.txt", "content": "one\n"}),
            ("run_terminal_cmd", {"command": "cat a.txt; echo two > a.txt"}),
            ("run_terminal_cmd", {"command": "cd pkg; cat ../a.txt"}),
            ("run_terminal_cmd", {"command": "pwd"}),
            ("write_file", {"path": "a.txt", "content": "three\n"}),
            ("grep", {"pattern": "three"}),
        )
    )
    assert [r.output for r in results[1:4]] == [
        "one\nexit code 0",
        "two\nexit code 0",
        "/home/dev/repo/pkg\nexit code 0",
    ]
    assert results[5].output == "a.txt:1:three"


async def test_calls_of_a_turn_overlap(sandbox):
    """Two reads are both under way at once: each waits inside the sandbox client until the other has begun."""
    both = asyncio.Barrier(2)

    class Meeting:
        """The real sandbox, with a meeting point before each read."""

        def __getattr__(self, name):
            return getattr(sandbox, name)

        async def read(self, path, *, max_bytes=1 << 20):
            await asyncio.wait_for(both.wait(), 10)
            return await sandbox.read(path, max_bytes=max_bytes)

    session = Session(Meeting(), get_profile("full"))
    results = await session.run(calls(("read_file", {"path": "totals.py"}), ("read_file", {"path": "pkg/util.py"})))
    assert all(r.error is None for r in results)


async def test_a_lost_sandbox_is_never_shown_to_the_policy(session, sandbox):
    await sandbox.close()
    with pytest.raises(HarnessFailure) as failure:
        await session.run(calls(("read_file", {"path": "totals.py"}), ("finish", {})))
    assert failure.value.kind is ToolErrorKind.INFRASTRUCTURE
    assert failure.value.tool == "read_file"


async def test_cancelling_a_turn_leaves_no_call_behind(session):
    turn = asyncio.ensure_future(session.run(calls(("run_terminal_cmd", {"command": "sleep 30"}))))
    others = asyncio.all_tasks() - {turn, asyncio.current_task()}
    await asyncio.wait([turn], timeout=0.3)
    turn.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert time.monotonic() - started < 5
    left = [t for t in asyncio.all_tasks() - others - {asyncio.current_task()} if "_after" in repr(t)]
    assert left == []


async def test_finish_waits_for_the_calls_before_it(session):
    results = await session.run(
        calls(("run_terminal_cmd", {"command": "sleep 0.2; echo done > late.txt"}), ("finish", {}), ("list_dir", {}))
    )
    assert session.finished
    assert "late.txt" in results[2].output
