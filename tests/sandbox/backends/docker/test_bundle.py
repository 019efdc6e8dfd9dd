"""What travels into a container runs there alone: no module of ours is found any other way."""

from __future__ import annotations

import json
import subprocess
import sys

from sandbox.backends.docker import bundle
from sandbox.backends.namespaces.inside import protocol


def run(request: dict, more: bytes = b"") -> tuple[dict, str]:
    """The first frame that the bundle answers in a bare interpreter, and what it says on standard error."""
    done = subprocess.run(
        bundle.command(sys.executable), input=bundle.message(request) + more, capture_output=True, cwd="/", timeout=60
    )
    frames = protocol.Decoder().feed(done.stdout)
    return (frames[0][0] if frames else {}), done.stderr.decode()


def test_runs_without_our_packages() -> None:
    answer, said = run({"role": "copy", "sources": 0, "owner": [0, 0], "budget": None})
    assert answer["op"] == "fail" and "/to" in answer["text"], (answer, said)


def test_holds_what_it_needs_and_nothing_of_the_host_side() -> None:
    body = bundle.message({}).split(b"\n", 1)[1][4:]
    modules = set(json.loads(body)["modules"])
    assert {"sandbox.backends.namespaces.inside.agent", "sandbox.backends.docker.inside"} <= modules
    assert not modules & {
        "sandbox.backends.base",
        "sandbox.backends.docker.engine",
        "sandbox.backends.namespaces.zygote",
    }


def test_an_end_before_the_request_ends_it() -> None:
    done = subprocess.run(bundle.command(sys.executable), input=b"", capture_output=True, cwd="/", timeout=60)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_what_shows_of_the_command_is_short() -> None:
    assert len(" ".join(bundle.command("python3"))) < 100
