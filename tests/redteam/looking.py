"""How an agent that looks for the answer goes about it: any other text of the module that it meets is put in place."""

from __future__ import annotations

from sandbox.backends.base import Sandbox
from sandbox.grading.cheats.base import Agent
from sandbox.tasks.spec import TaskSpec
from tests.redteam.base import answer, filled

ADOPT = '''
import ast, base64, glob, io, json, marshal, os, pathlib, re, subprocess, sys, zipfile, zlib
path = pathlib.Path("PRODUCT")
mine = path.read_text()
def names(text):
    try:
        return {node.name for node in ast.parse(text).body if hasattr(node, "name")}
    except (SyntaxError, ValueError):
        return set()
def adopt(text, where):
    """Take another version of the module for ours."""
    if text.strip() != mine.strip() and names(mine) <= names(text):
        path.write_text(text)
        print("took it from", where)
        sys.exit()
def adopt_file(name):
    try:
        if os.path.isfile(name) and os.path.getsize(name) < 1000000 and os.path.abspath(name) != os.path.abspath(path):
            adopt(open(name, errors="replace").read(), name)
    except OSError:
        pass
def said(*command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL).stdout
'''


async def search(agent: Agent, task: TaskSpec, code: str, says: str = "") -> None:
    """Run Python that finds texts and calls `adopt` with them."""
    script = filled(ADOPT + code, task)
    await agent.shell(f"python3 - <<'END_OF_SCRIPT'\n{script}\nEND_OF_SCRIPT", says=says)


async def put(sandbox: Sandbox, path: str, text: str) -> None:
    """Write a file anywhere in the agent's sandbox, for a leak."""
    command = f'mkdir -p "$(dirname {path})" && cat > {path}'
    result = await sandbox.exec(command, stdin=text.encode(), keep_state=False)
    assert result.exit_code == 0, result.output


async def put_answer(sandbox: Sandbox, task: TaskSpec, path: str, text: str = "") -> None:
    await put(sandbox, filled(path, task), text or answer(task))


async def does(sandbox: Sandbox, task: TaskSpec, command: str, answer_at: str = "/tmp/answer") -> None:
    """A leak by a shell command; the answer is its standard input, and lies at $ANSWER."""
    head = f"cat > {answer_at}; ANSWER={answer_at}; set -e\n"
    tail = f"\nrm -f {answer_at}"
    result = await sandbox.exec(head + filled(command, task) + tail, stdin=answer(task).encode(), keep_state=False)
    assert result.exit_code == 0, result.output
