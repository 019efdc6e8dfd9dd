"""Episodes that go on from a turn of another one: in real sandboxes, from snapshots and by running calls again."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.backends.base import SandboxLost
from sandbox.backends.snapshots import SnapshotStore
from sandbox.grading.verdict.report import Verdict
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from tests.trainer.rollouts.scripted import ScriptedClient, call, solution
from trainer.config import RLConfig, SummaryConfig
from trainer.rollouts.fork import ForkImpossible, check, prepare
from trainer.rollouts.group import run_group
from trainer.toy.preset import toy_harness, toy_rl, toy_sampling
from trainer.types import Trajectory

WRONG = "raise SystemExit\n"
PROFILE = get_profile("full")


def config(*, every: int = 1, size: int = 2, trigger: int = 0, **sampling) -> RLConfig:
    return toy_rl(
        group_size=size,
        harness=toy_harness(
            snapshot_every=every, profile=PROFILE.name, summary=SummaryConfig(trigger_tokens=trigger, max_tokens=64)
        ),
        sampling=toy_sampling(**({"max_turn_tokens": 600, "max_context_tokens": 4000} | sampling)),
    )


@pytest.fixture
def store(tmp_path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshots")


@pytest.fixture
def play(task, renderer, environments, backend, store):
    async def run(script, *, origin=None, **settings):
        return await run_group(
            task=task,
            group_id="g",
            prompt_index=0,
            config=config(**settings),
            client=ScriptedClient(renderer, script),
            renderer=renderer,
            backend=backend,
            environments=environments,
            deployment="policy",
            seed=3,
            snapshots=store,
            origin=origin,
        )

    return run


@pytest.fixture
def fork(task, environments, backend, store):
    async def make(parent: Trajectory, turns: int, *, store: SnapshotStore = store):
        return await prepare(
            parent,
            name="rollout 1",
            turns=turns,
            task=task,
            profile=PROFILE,
            backend=backend,
            environments=environments,
            store=store,
        )

    return make


def script(task):
    """Look, spoil the file that is to be mended, move and leave a mark, give up."""
    [path, *_] = task.gold
    return [
        [call("run_terminal_cmd", command="cat *.py | head -3")],
        [call("write_file", path=path, content=WRONG)],
        [call("run_terminal_cmd", command="cd /home/dev && export MARK=1; echo kept > mark; pwd")],
        [call("finish")],
    ]


async def test_snapshots_are_kept_where_something_changed(play, task):
    parent = (await play(script(task), size=1 + 1)).trajectories[0]
    digests = [turn.snapshot for turn in parent.turns]
    assert all(digests[:3]) and len(set(digests[1:3])) == 2 and digests[3] == ""
    assert "snapshots" in parent.seconds
    parent = (await play(script(task), every=2)).trajectories[0]
    assert [bool(turn.snapshot) for turn in parent.turns] == [False, True, False, False]
    parent = (await play(script(task), every=0)).trajectories[0]
    assert not any(turn.snapshot for turn in parent.turns)


async def test_a_turn_that_only_reads_keeps_the_snapshot_before_it(play, task, store, monkeypatch):
    saved = []
    save = SnapshotStore.save

    async def counted(self, sandbox):
        saved.append(sandbox)
        return await save(self, sandbox)

    monkeypatch.setattr(SnapshotStore, "save", counted)
    [path, *_] = task.gold
    said = [[call("write_file", path="a", content="a")], *[[call("read_file", path=path)]] * 3, [call("finish")]]
    parents = (await play(said, size=2)).trajectories
    assert [len({turn.snapshot for turn in parent.turns[:4]}) for parent in parents] == [1, 1]
    assert len(saved) == 2, "once for each episode"


@pytest.mark.parametrize("date", ["2200-01-01", "1700-01-01"])
async def test_files_of_any_time_are_kept(play, task, date):
    said = [[call("run_terminal_cmd", command=f"echo > a; mkdir b; touch -d {date} a b")], [call("finish")]]
    parent = (await play(said, size=2)).trajectories[0]
    assert parent.verdict is not Verdict.INFRA_ERROR and parent.turns[0].snapshot


async def test_a_snapshot_that_cannot_be_made_is_none(play, task, monkeypatch):
    def fail(self, draft, snapshot):
        raise ValueError("no record holds this")

    monkeypatch.setattr(SnapshotStore, "_keep", fail)
    parent = (await play(script(task), size=2)).trajectories[0]
    assert parent.verdict is not Verdict.INFRA_ERROR and not any(turn.snapshot for turn in parent.turns)


@pytest.mark.parametrize(("every", "replayed"), [(1, 0), (2, 1), (0, 3)])
async def test_continuations_have_the_files_shell_and_tokens_of_the_turn(play, fork, task, every, replayed):
    parent = (await play(script(task), every=every)).trajectories[0]
    assert parent.verdict is Verdict.FAILED
    prepared = await fork(parent, 3)
    check_script = [[call("run_terminal_cmd", command="pwd; echo $MARK; cat mark; cd ~/repo")], *solution(task)]
    result = await play(check_script, origin=prepared.origin, size=3, every=0)
    prepared.lease.close()
    assert len(result.trajectories) == 3 and not result.infra_errors
    start = parent.turns[3].token_start
    for t in result.trajectories:
        assert t.forked is not None and (t.forked.turns, t.forked.tokens, t.forked.replayed) == (3, start, replayed)
        [segment], [recorded] = t.segments, parent.segments
        assert segment.tokens[:start] == recorded.tokens[:start]
        assert not any(segment.loss_mask[:start]) and segment.loss_mask[start]
        assert set(segment.versions[:start]) == {-1}
        assert t.turns[:3] == parent.turns[:3]
        assert t.turns[3].token_start == start
        assert t.turns[3].results[0].output == "/home/dev\n1\nkept\nexit code 0"
        assert t.verdict is Verdict.PASSED


async def test_the_file_of_the_store_is_enough_on_another_machine(play, fork, task, store, tmp_path):
    parent = (await play(script(task))).trajectories[0]
    digest = parent.turns[1].snapshot
    other = SnapshotStore(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "archives" / digest).write_bytes(
        (tmp_path / "snapshots" / "archives" / digest).read_bytes()
    )
    prepared = await fork(parent, 2, store=other)
    result = await play([[call("finish")]], origin=prepared.origin)
    prepared.lease.close()
    assert prepared.origin.forked.replayed == 0
    assert all(WRONG.strip() in t.patch for t in result.trajectories)


async def test_a_snapshot_that_is_gone_or_damaged_is_made_up_for(play, fork, task, store, tmp_path):
    parent = (await play(script(task))).trajectories[0]
    archives = tmp_path / "snapshots" / "archives"
    (archives / parent.turns[2].snapshot).unlink()
    second = archives / parent.turns[1].snapshot
    second.write_bytes(second.read_bytes()[:-1])
    fresh = SnapshotStore(tmp_path / "copy")
    for file in archives.iterdir():
        (tmp_path / "copy" / "archives" / file.name).write_bytes(file.read_bytes())
    prepared = await fork(parent, 3, store=fresh)
    prepared.lease.close()
    assert prepared.origin.forked.replayed == 2


async def test_a_replay_that_answers_otherwise_says_where(play, fork, task):
    said = [[call("run_terminal_cmd", command="od -An -N8 -tx8 /dev/urandom")], [call("finish")]]
    parent = (await play(said, every=0)).trajectories[0]
    with pytest.raises(ForkImpossible, match=r"turn 1 has no snapshot, and run_terminal_cmd answers otherwise .*now"):
        await fork(parent, 1)


async def test_what_differs_each_time_is_no_difference(play, fork, task):
    command = "date +%H:%M:%S; python3 -c 'print(object())'; echo took $RANDOM.5s; mktemp"
    parent = (await play([[call("run_terminal_cmd", command=command)], [call("finish")]], every=0)).trajectories[0]
    prepared = await fork(parent, 1)
    prepared.lease.close()
    assert prepared.origin.forked.replayed == 1


async def test_turns_before_the_fork_count_towards_the_limits(play, fork, task):
    parent = (await play(script(task))).trajectories[0]
    prepared = await fork(parent, 2)
    result = await play([[call("list_dir", path=".")]], origin=prepared.origin, max_turns=3)
    prepared.lease.close()
    assert [(len(t.turns), t.stop_reason) for t in result.trajectories] == [(3, "turn_limit")] * 2


async def test_what_tools_keep_beside_the_sandbox_goes_on(backend, environments, task):
    todos = call("todo_write", todos=[{"content": "one"}, {"content": "two", "status": "done"}])
    server = call("run_terminal_cmd", command="sleep 60", background=True)
    async with await backend.start(environments.spec(task.environment)) as sandbox:
        session = Session(sandbox, PROFILE)
        session.recall([todos, server, call("no_such_tool"), call("todo_write", todos=7)])
        assert [(todo.content, todo.status) for todo in session.todos] == [("one", "pending"), ("two", "done")]
        [result] = await session.run([server])
        assert "/tmp/background-2.log" in result.output


async def test_what_breaks_under_a_replay_is_an_error_of_the_machine(play, fork, task, backend, monkeypatch):
    parent = (await play(script(task), every=0)).trajectories[0]

    async def lost(*_, **__):
        raise SandboxLost("gone")

    monkeypatch.setattr(backend, "start", lost)
    with pytest.raises(SandboxLost):
        await fork(parent, 1)


async def test_a_group_of_continuations_that_is_cancelled_leaves_nothing(play, fork, task, backend, monkeypatch):
    parent = (await play(script(task))).trajectories[0]
    prepared = await fork(parent, 2)
    boxes, start = [], backend.start

    async def noted(*args, **kwargs):
        boxes.append(await start(*args, **kwargs))
        return boxes[-1]

    monkeypatch.setattr(backend, "start", noted)
    running = asyncio.ensure_future(
        play([[call("run_terminal_cmd", command="sleep 600")]], origin=prepared.origin, size=4)
    )
    async with asyncio.timeout(30):
        while len(boxes) < 4:
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    prepared.lease.close()
    for box in boxes:
        with pytest.raises(SandboxLost):
            await box.exec("true")


SUMMARY = "<summary>spoiled the file, left a mark</summary>"


async def summarized(play, task) -> Trajectory:
    """Three turns, a summary, and another window of two."""
    look = [call("run_terminal_cmd", command="cat mark")]
    whole = (await play([*script(task)[:3], [call("finish")]])).trajectories[0].segments[0]
    said = [*script(task)[:3], SUMMARY, look, [call("finish")]]
    parent = (await play(said, trigger=len(whole.tokens) - 30)).trajectories[0]
    assert [(turn.segment, turn.summary) for turn in parent.turns] == [
        (0, False), (0, False), (0, False), (0, True), (1, False), (1, False),
    ]  # fmt: skip
    return parent


@pytest.mark.parametrize("turns", [4, 5])
async def test_a_later_window_is_continued_from_its_recorded_tokens(play, fork, task, turns):
    parent = await summarized(play, task)
    prepared = await fork(parent, turns)
    result = await play([[call("run_terminal_cmd", command="cat mark")], *solution(task)], origin=prepared.origin)
    prepared.lease.close()
    assert prepared.origin.forked.replayed == 0  # a summary calls nothing: the snapshot before it is that moment
    start = parent.turns[turns].token_start
    assert prepared.origin.forked.tokens == len(parent.segments[0].tokens) + start
    for t in result.trajectories:
        first, second = t.segments
        assert first.tokens == parent.segments[0].tokens
        assert not any(first.loss_mask) and set(first.versions) == {-1}
        assert second.tokens[:start] == parent.segments[1].tokens[:start]
        assert not any(second.loss_mask[:start]) and second.loss_mask[start]
        assert t.turns[:turns] == parent.turns[:turns]
        assert (t.turns[turns].segment, t.turns[turns].token_start) == (1, start)
        assert t.turns[turns].results[0].output.startswith("kept")
        assert t.verdict is Verdict.PASSED


async def test_continuations_before_a_summary_write_their_own(play, fork, task, renderer):
    parent = await summarized(play, task)
    prepared = await fork(parent, 3)
    other = "<summary>something else</summary>"
    result = await play([other, *solution(task)], origin=prepared.origin, trigger=2000)
    prepared.lease.close()
    for t in result.trajectories:
        [mine] = [turn for turn in t.turns if turn.summary]
        assert (mine.index, mine.segment, mine.text) == (3, 0, other)
        asked = parent.turns[3].token_start
        assert mine.token_start == asked
        assert t.segments[0].tokens[:asked] == parent.segments[0].tokens[:asked]
        assert "something else" in renderer.tokenizer.decode(t.segments[1].tokens)
        assert t.verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("turns", "words"),
    [(0, "choose one from 1 to 1"), (2, "the last turn ended the episode"), (9, "choose one from 1 to 1")],
)
def test_turns_that_cannot_be_continued_are_named(turns, words):
    with pytest.raises(ForkImpossible, match=words):
        check(2, 1, turns, segment=0)


def test_tokens_that_are_not_recorded_cannot_be_continued():
    with pytest.raises(ForkImpossible, match="behind an endpoint, which gives no tokens"):
        check(5, 0, 2, segment=0)
    with pytest.raises(ForkImpossible, match="context window 3 are not recorded"):
        check(5, 2, 2, segment=2)
