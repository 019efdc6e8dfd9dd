"""Hidden calls, judged in real clean sandboxes."""

import statistics
import time

import pytest

from sandbox.backends.base import FileChange, Patch, SandboxLost
from sandbox.grading.grader import grade
from sandbox.grading.patches.patch import from_files
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import Verdict
from sandbox.grading.verifiers import calls
from sandbox.tasks.spec import BuiltEnvironment, CallsVerifier
from tests.sandbox.grading.make import BUGGY, CALLS_TASK, FIXED, patch


@pytest.fixture
def judge(backend, environments):
    async def run(work, task=CALLS_TASK):
        return await grade(backend=backend, environments=environments, task=task, patch=work)

    return run


async def test_the_fix_passes_and_the_bug_fails(judge):
    good = await judge(from_files(CALLS_TASK, CALLS_TASK.gold))
    assert good.verdict is Verdict.PASSED and good.cause == ""
    assert [case.id for case in good.cases] == [f"case-{n:03d}" for n in range(24)]
    assert good.bundle_hash == CALLS_TASK.bundle_hash
    bad = await judge(Patch())
    assert bad.verdict is Verdict.FAILED and bad.cause == "24 of 24 cases failed"
    assert bad.cases[0].message == "got 3, expected 2"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("def total(:\n", "error"),
        ("def other(items): return sum(items)\n", "error"),
        ("import nothing_of_that_name\n", "error"),
        ("def total(items): raise ValueError('no')\n", "error"),
        ("def total(items): return None\n", "failed"),
        ("def total(items): return float(sum(items))\n", "failed"),
        ("import os\nos._exit(0)\n", "missing"),
        ("import os\ndef total(items): os._exit(0)\n", "missing"),
        ("import sys\nsys.exit(0)\n", "error"),
        ("def total(items): return total(items)\n", "error"),
    ],
)
async def test_work_that_fails(judge, text, status):
    report = await judge(patch(totals=text))
    assert report.verdict is Verdict.FAILED
    assert {case.status for case in report.cases} == {status}


async def test_work_that_sleeps_is_not_waited_for(judge):
    """A limit of 2 s is one by the wall: it does not help to leave the processor alone."""
    task = CALLS_TASK.model_copy(update={"verifier": CALLS_TASK.verifier.model_copy(update={"timeout_seconds": 2.0})})
    work = patch(totals="import os, signal\ndef total(items): os.kill(os.getpid(), signal.SIGSTOP)\n")
    report = await judge(work, task)
    assert report.verdict is Verdict.FAILED and "timeout" in {case.status for case in report.cases}
    assert report.seconds < 15.0, report.seconds  # on an idle machine 2.5; `test_holding.py` takes the starved time off


async def test_endless_work_runs_out_of_processor_time(judge):
    report = await judge(patch(totals="def total(items):\n    while items[0] == 3: pass\n    return sum(items)\n"))
    assert report.verdict is Verdict.FAILED
    statuses = [case.status for case in report.cases]
    assert statuses.count("timeout") == 1 and set(statuses) <= {"passed", "timeout", "missing"}
    assert "1 ran out of time" in report.cause


ATTACKS = {
    "knows all cases before it answers": (
        "import gc, os\n"
        "def total(i):\n"
        "    texts = [t for t in gc.get_objects() if type(t) in (list, tuple) and len(t) == 24]\n"
        "    for fd in (0, *range(3, 9)):\n"
        "        try: os.set_blocking(fd, False); texts.append(os.read(fd, 4096)) if os.fstat(fd) else 0\n"
        "        except OSError: pass\n"
        "    for part in ('fd/0', 'mem', 'environ'):\n"
        "        try: open(f'/proc/{os.getppid()}/{part}', 'rb').read(1); return sum(i)\n"
        "        except OSError: pass\n"
        "    return sum(i) if [t for t in texts if t] else -1\n"
    ),
    "answers by the count of calls": "n = []\ndef total(i):\n    n.append(1)\n    return len(n) + 1\n",
    "a subclass that prints what is right": (
        "class E(int):\n    def __repr__(s): return str(s.n)\ndef total(i):\n    e = E(-1); e.n = sum(i); return e\n"
    ),
    "always equal": "class E:\n    def __eq__(s, o): return True\n    __repr__ = lambda s: ''\ndef total(i): return E()\n",
    "patched repr": "import builtins\nbuiltins.repr = lambda x: '2'\nbuiltins.str = repr\ndef total(i): return -1\n",
    "patched write": "import os\nos.write = lambda fd, b: len(b)\ndef total(i): return -1\n",
    "guessing through every descriptor": (
        "import os\nfor fd in range(3, 64):\n"
        "    for n in range(24):\n        try: os.write(fd, b'%d R 1\\n2' % n)\n        except OSError: pass\n"
        "def total(i): return -1\n"
    ),
    "noise": "import sys\nprint('x' * 100000)\nsys.stderr.write('y' * 100000)\nsys.stdout.close()\ndef total(i): return -1\n",
    "exit hook": "import atexit, os\natexit.register(lambda: os._exit(0))\ndef total(i): return -1\n",
    "reading the caller": "import sys\ndef total(i): return sys._getframe(1).f_locals.get('expected', -1)\n",
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_attacks_on_the_runner_win_nothing(judge, name):
    assert (await judge(patch(totals=ATTACKS[name]))).verdict is Verdict.FAILED


async def test_work_that_is_right_only_in_the_first_process_is_adaptive(judge, monkeypatch):
    monkeypatch.setattr(calls, "AGAIN_SHARE", 1.0)
    once = (
        "import os\nmine = []\ndef total(i):\n"
        "    try:\n        os.mkdir('/tmp/seen')\n        mine.append(1)\n    except OSError:\n        pass\n"
        "    return sum(i) if mine else -1\n"
    )
    assert (await judge(patch(totals=once))).outcome is Cause.ADAPTIVE
    assert (await judge(from_files(CALLS_TASK, CALLS_TASK.gold))).outcome is Cause.ALL_PASSED


async def test_noise_does_not_harm_good_work(judge):
    noisy = "import sys, os\nprint('x' * 100000)\nsys.stdout = None\nos.close(1)\n" + FIXED
    assert (await judge(patch(totals=noisy))).verdict is Verdict.PASSED


async def test_the_judge_cannot_be_replaced_from_the_checkout(judge):
    files = ("sitecustomize.py", "os.py", "sys.py", "encodings/__init__.py", "codecs.py")
    evil = Patch(changes=tuple(FileChange(path, b"raise SystemExit(0)\n") for path in files))
    report = await judge(evil)
    assert report.verdict is Verdict.FAILED and {case.status for case in report.cases} == {"failed"}
    assert len(report.dropped) == len(files)


async def test_imports_and_packages_of_the_checkout_work(judge):
    text = (
        "from helpers import OFFSET\nfrom pkg import deep\ndef total(items): return sum(items) + OFFSET + deep.X - 1\n"
    )
    assert (await judge(patch(totals=text))).verdict is Verdict.PASSED
    task = CALLS_TASK.model_copy(
        update={"verifier": CallsVerifier(module="pkg/deep.py", function="f", cases=(("(1,)", "2"),)), "gold": {}}
    )
    inner = Patch(
        changes=(
            FileChange("pkg/deep.py", b"from . import more\ndef f(x): return x + more.ONE\n", before=b""),
            FileChange("pkg/more.py", b"ONE = 1\n"),
        )
    )
    assert (await judge(inner, task)).verdict is Verdict.PASSED


async def test_deletions_and_impossible_changes(judge):
    gone = Patch(changes=(FileChange("totals.py", None, before=BUGGY.encode()),))
    assert (await judge(gone)).verdict is Verdict.FAILED
    blocked = Patch(changes=(FileChange("pkg", b"a file where a directory is"), *patch(totals=FIXED).changes))
    report = await judge(blocked)
    assert report.verdict is Verdict.PASSED
    assert len(report.dropped) == 1 and report.dropped[0].startswith("pkg: cannot be applied")


async def test_infrastructure_is_not_the_works_fault(backend, environments):
    class Broken:
        async def start(self, *args, **kwargs):
            raise SandboxLost("it fell over")

    lost = await grade(backend=Broken(), environments=environments, task=CALLS_TASK, patch=Patch())
    assert lost.outcome is Cause.SANDBOX_LOST and lost.retry and "it fell over" in lost.cause
    absent = CALLS_TASK.model_copy(update={"environment": BuiltEnvironment(digest="0" * 64)})
    report = await grade(backend=backend, environments=environments, task=absent, patch=Patch())
    assert report.outcome is Cause.ENVIRONMENT_MISSING and not report.retry and "is not in" in report.cause


class Fragile:
    """A backend whose sandboxes die when commands run in them: `deaths` of them, or all that hold the work."""

    def __init__(self, backend, *, deaths=0, only_with_work=False):
        self.backend, self.deaths, self.only_with_work, self.started = backend, deaths, only_with_work, 0

    async def start(self, *args, **kwargs):
        self.started += 1
        sandbox = await self.backend.start(*args, **kwargs)
        real, breaks = sandbox.exec, self.started <= self.deaths

        async def die(*args, **kwargs):
            with_work = self.only_with_work and b"WORK" in await sandbox.read("totals.py")
            if breaks or with_work:
                raise SandboxLost("the agent of the sandbox went away")
            return await real(*args, **kwargs)

        sandbox.exec = die
        return sandbox


async def test_a_sandbox_lost_once_is_tried_again(backend, environments):
    fragile = Fragile(backend, deaths=1)
    work = from_files(CALLS_TASK, CALLS_TASK.gold)
    report = await grade(backend=fragile, environments=environments, task=CALLS_TASK, patch=work)
    assert report.outcome is Cause.ALL_PASSED and fragile.started == 2


async def test_work_that_breaks_each_sandbox_fails(backend, environments):
    """Else breaking the grader would be better than failing: such attempts would be run again or left out."""
    fragile = Fragile(backend, only_with_work=True)
    report = await grade(
        backend=fragile, environments=environments, task=CALLS_TASK, patch=patch(totals=f"# WORK\n{BUGGY}")
    )
    assert (report.verdict, report.outcome) == (Verdict.FAILED, Cause.SANDBOX_BROKEN_BY_WORK)
    assert fragile.started == 3


async def test_a_machine_that_breaks_every_sandbox_is_not_the_works_fault(backend, environments):
    fragile = Fragile(backend, deaths=9)
    report = await grade(backend=fragile, environments=environments, task=CALLS_TASK, patch=patch(totals=BUGGY))
    assert report.outcome is Cause.SANDBOX_LOST


async def test_a_verdict_is_cheap(judge):
    """The budget is 60 ms on idle cores; the bound here only catches a wrong order of magnitude on a busy machine."""
    work = from_files(CALLS_TASK, CALLS_TASK.gold)
    await judge(work)
    seconds = []
    for _ in range(10):
        started = time.perf_counter()
        assert (await judge(work)).verdict is Verdict.PASSED
        seconds.append(time.perf_counter() - started)
    assert statistics.median(seconds) < 0.6
