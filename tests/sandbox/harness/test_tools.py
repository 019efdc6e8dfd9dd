"""Every tool in a real sandbox. The formats are frozen: policies are trained on them."""

import pytest

from sandbox.backends.base import Backend, Limits
from sandbox.harness.profile import get_profile
from sandbox.harness.session import Session
from sandbox.harness.types import ToolCall, ToolErrorKind
from sandbox.tasks.spec import InlineEnvironment


async def test_read_file_numbers_lines(call):
    assert (await call("read_file", path="pkg/util.py")).output == "1|LIMIT = 10\n2|NAMES = ['a', 'b', 'a']"
    assert (await call("read_file", path="./totals.py", offset=2, limit=2)).output == (
        "2|    value = 0\n3|    for item in items:"
    )
    past = await call("read_file", path="pkg/util.py", offset=3)
    assert past.output == "error: pkg/util.py has 2 lines; offset 3 is past the end"


async def test_long_output_is_cut_in_the_middle_and_says_so(call, sandbox):
    await sandbox.write("long.txt", b"".join(b"line %d\n" % n for n in range(20_000)))
    result = await call("read_file", path="long.txt")
    assert result.output.startswith("1|line 0\n2|line 1\n")
    assert result.output.endswith("20000|line 19999")
    assert f"[... {result.cut_bytes} bytes cut ...]" in result.output
    assert result.cut_bytes > 0 and len(result.output) < 31_000


@pytest.mark.parametrize("tool", ["read_file", "delete_file"])
async def test_what_is_not_a_file(call, tool):
    absent = await call(tool, path="nope.py")
    assert (absent.output, absent.error.kind) == ("error: no such file: nope.py", ToolErrorKind.NOT_FOUND)
    folder = await call(tool, path="pkg")
    assert (folder.output, folder.error.kind) == ("error: is a directory: pkg", ToolErrorKind.REFUSED)
    below = await call(tool, path="totals.py/x")
    assert below.error.kind is ToolErrorKind.NOT_FOUND
    outside = await call(tool, path="../../etc/passwd")
    assert outside.error.kind is ToolErrorKind.REFUSED


async def test_binary_files_are_refused(call, sandbox):
    await sandbox.write("image.bin", b"\xff\xfe\x00")
    await sandbox.write("nul.txt", b"a\0b")
    for path in ("image.bin", "nul.txt"):
        result = await call("read_file", path=path)
        assert result.error.kind is ToolErrorKind.REFUSED
        assert path in result.output


async def test_list_dir(call):
    assert (await call("list_dir")).output == ".git/\nnotes.txt\npkg/\ntotals.py"
    assert (await call("list_dir", path="pkg")).output == "util.py"
    assert (await call("list_dir", path="nope")).output == "error: no such directory: nope"
    assert (await call("list_dir", path="totals.py")).error.kind is ToolErrorKind.REFUSED


async def test_edit_file(call, sandbox):
    result = await call("edit_file", path="totals.py", old_string="value += item", new_string="value -= item")
    assert (result.output, result.error) == ("edited totals.py:4", None)
    assert b"        value -= item\n" in await sandbox.read("totals.py")


async def test_an_edit_that_would_fill_the_memory_is_refused_before_it_is_made(call, sandbox):
    await sandbox.write("as.txt", b"a" * 1_000_000)
    result = await call("edit_file", path="as.txt", old_string="a", new_string="b" * 1_000_000, replace_all=True)
    assert result.output == "error: too large: 1000000000000 bytes, at most 1048576"


async def test_edit_file_refuses_what_is_not_exact(call, sandbox):
    before = await sandbox.read("pkg/util.py")
    absent = await call("edit_file", path="pkg/util.py", old_string="zzz", new_string="y")
    assert (absent.output, absent.error.kind) == (
        "error: old_string not found in pkg/util.py",
        ToolErrorKind.NOT_FOUND,
    )
    twice = await call("edit_file", path="pkg/util.py", old_string="'a'", new_string="'c'")
    assert (twice.output, twice.error.kind) == (
        "error: old_string occurs 2 times in pkg/util.py",
        ToolErrorKind.CONFLICT,
    )
    equal = await call("edit_file", path="pkg/util.py", old_string="a", new_string="a")
    assert equal.output == "error: old_string and new_string are equal"
    nowhere = await call("edit_file", path="nope.py", old_string="a", new_string="b")
    assert nowhere.output == "error: no such file: nope.py"
    empty = await call("edit_file", path="pkg/util.py", old_string="", new_string="b")
    assert empty.error.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert await sandbox.read("pkg/util.py") == before


async def test_replace_all_reports_the_first_line(call, sandbox):
    arguments = {"path": "pkg/util.py", "old_string": "'a'", "new_string": "'c'", "replace_all": True}
    assert (await call("edit_file", **arguments)).output == "edited pkg/util.py:2"
    assert await sandbox.read("pkg/util.py") == b"LIMIT = 10\nNAMES = ['c', 'b', 'c']\n"


async def test_write_and_delete(call, sandbox):
    assert (await call("write_file", path="new/deep/x.py", content="é = 1\n")).output == "wrote new/deep/x.py"
    assert await sandbox.read("new/deep/x.py") == "é = 1\n".encode()
    assert (await call("write_file", path="pkg", content="")).output == "error: is a directory: pkg"
    assert (await call("delete_file", path="new/deep/x.py")).output == "deleted new/deep/x.py"
    assert (await call("write_file", path="bad.txt", content="\ud800")).error.kind is ToolErrorKind.INVALID_ARGUMENTS


async def test_grep(call):
    assert (await call("grep", pattern=r"value \+?=")).output == (
        "totals.py:2:    value = 0\ntotals.py:4:        value += item"
    )
    assert (await call("grep", pattern="LIMIT", path="pkg")).output == "pkg/util.py:1:LIMIT = 10"
    assert (await call("grep", pattern="note 7$", glob="*.txt")).output == "notes.txt:8:note 7"
    assert (await call("grep", pattern="note 7$", glob="*.py")).output == "no matches"
    assert (await call("grep", pattern="(")).error.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert (await call("grep", pattern="x", path="nope")).error.kind is ToolErrorKind.NOT_FOUND


async def test_grep_shows_a_limited_number(call, sandbox):
    lines = (await call("grep", pattern="note")).output.split("\n")
    assert len(lines) == 51
    assert lines[-1] == "[more than 50 matches; narrow the search]"
    toy = Session(sandbox, get_profile("toy"))
    (result,) = await toy.run([ToolCall(id="1", name="grep", arguments={"pattern": "note"})])
    assert result.output == "notes.txt:1:note 0\nnotes.txt:2:note 1\nnotes.txt:3:note 2\nnotes.txt:4:note 3"


async def test_terminal_keeps_state(call):
    assert (
        await call("run_terminal_cmd", command="cd pkg; export WORD=hi; f() { echo from f; }")
    ).output == "exit code 0"
    result = await call("run_terminal_cmd", command='pwd; echo "$WORD"; f; exit 3')
    assert result.output == "/home/dev/repo/pkg\nhi\nfrom f\nexit code 3"
    assert result.error is None


async def test_terminal_output_is_bounded_and_the_cut_is_exact(call, sandbox):
    toy = Session(sandbox, get_profile("toy"))
    (result,) = await toy.run([ToolCall(id="1", name="run_terminal_cmd", arguments={"command": "seq 1 2000"})])
    assert result.output.startswith("1\n2\n") and result.output.endswith("\n2000\nexit code 0")
    assert result.output.count("bytes cut") == 1 and result.cut_bytes > 7000
    huge = await call("run_terminal_cmd", command="seq 1 200000")
    assert huge.output.startswith("1\n2\n") and huge.output.endswith("\n200000\nexit code 0")
    assert huge.output.count("bytes cut") == 1 and huge.cut_bytes > 1_000_000


async def test_a_command_that_never_ends(sandbox):
    import dataclasses

    session = Session(sandbox, dataclasses.replace(get_profile("full"), command_seconds=0.5))
    (late,) = await session.run([ToolCall(id="1", name="run_terminal_cmd", arguments={"command": "echo a; sleep 60"})])
    assert late.error.kind is ToolErrorKind.TIMEOUT
    assert late.output == "error: command ran longer than 0.5 s and was ended\na"
    (after,) = await session.run([ToolCall(id="2", name="run_terminal_cmd", arguments={"command": "echo b"})])
    assert after.output == "b\nexit code 0"


async def test_memory_hog_is_ended_and_named(backend: Backend, environments):
    limits = Limits(memory_bytes=96 << 20)
    spec = environments.spec(InlineEnvironment(files={"a.txt": "a"}))
    async with await backend.start(spec, limits=limits) as sandbox:
        session = Session(sandbox, get_profile("full"))
        hog = "python3 -c 'x = bytearray(1 << 30); print(len(x))'; sleep 0.3; exit 5"
        (result,) = await session.run([ToolCall(id="1", name="run_terminal_cmd", arguments={"command": hog})])
        assert result.error is None or result.error.kind is ToolErrorKind.REFUSED
        assert "1073741824" not in result.output


async def test_background_commands_go_on(call):
    started = await call("run_terminal_cmd", command="echo ready; read x < gate; echo done > out", background=True)
    assert started.output.startswith("started in background as process ")
    assert started.output.endswith("output in /tmp/background-1.log\nexit code 0")
    await call("run_terminal_cmd", command="until [ -s /tmp/background-1.log ]; do :; done; mkfifo -m 600 pipe")
    assert (await call("run_terminal_cmd", command="cat /tmp/background-1.log")).output.startswith("ready")


async def test_output_can_always_be_stored(call):
    result = await call("run_terminal_cmd", command=r"printf 'a\0b\377'")
    assert result.output == "a\ufffdb\ufffd\nexit code 0"
    await call("run_terminal_cmd", command=r"touch $'odd\377name'")
    assert (await call("list_dir")).output.encode()


async def test_nobody_answers_a_prompt(call):
    result = await call("run_terminal_cmd", command="read -r line; echo got:$line; cat")
    assert result.output == "got:\nexit code 0"


async def test_todos(call, session):
    items = [{"content": "find"}, {"content": "fix", "status": "in_progress"}, {"content": "look", "status": "done"}]
    assert (await call("todo_write", todos=items)).output == "todos: 2 pending, 1 done"
    assert (session.todos[0].content, session.todos[0].status) == ("find", "pending")
    assert (await call("todo_write", todos=[{"content": "x", "status": "maybe"}])).error is not None
    assert len(session.todos) == 3


async def test_finish(call, session):
    assert not session.finished
    assert (await call("finish", summary="all good")).output == ""
    assert session.finished and session.summary == "all good"
