"""The two ways into a box from outside: a helper among its processes, and the listener of its only port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping

import pytest

from sandbox.backends.base import EnvSpec, NetPolicy
from sandbox.backends.docker import containers
from sandbox.backends.docker.backend import DockerBackend

from ..attacks import python

pytestmark = pytest.mark.docker
PRETENDER = (
    python("""
        import ctypes, os, signal
        if os.fork() == 0:
            if os.fork() == 0:
                ctypes.CDLL(None).prctl(15, b"init")
                open("/tmp/pretender", "w").write(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        os.wait()
    """)
    + "\nwhile [ ! -s /tmp/pretender ]; do sleep 0.02; done\nsleep 971 & kill -STOP $!; echo $! >/tmp/other"
)
"""A process that looks like a child of the agent which somebody stopped before it ran its program, and another."""


async def test_a_helper_ends_what_holds_the_agent_up_and_nothing_else(backend: DockerBackend, env: EnvSpec) -> None:
    async with await backend.start(env) as sandbox:
        await sandbox.exec(PRETENDER, timeout=20)
        states = "for f in pretender other; do ps -o s= -p $(cat /tmp/$f) || echo gone; done"
        async with asyncio.timeout(30):
            while (await sandbox.exec(states)).output.split() != [b"T", b"T"]:
                await asyncio.sleep(0.05)
        ready = backend._ready
        assert ready is not None
        helper = containers.helper(ready.kind, sandbox._made_of.box)
        await ready.engine.do(ready.engine.job, helper, {"role": "help"})
        assert (await sandbox.exec(states)).output.split() == [b"gone", b"T"]


class Answering:
    """A gateway that says hello to whoever connects."""

    port = 4711
    variables: Mapping[str, str] = {"WAY_OUT": "http://127.0.0.1:4711"}
    closed = False

    async def serve(self, sandbox: str, listener: socket.socket) -> Answering:
        async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello from outside\n")
            await writer.drain()
            writer.close()

        self._server = await asyncio.start_server(hello, sock=listener)
        return self

    async def close(self) -> None:
        self._server.close()
        self.closed = True


async def test_a_gateway_is_the_only_way_out(backend: DockerBackend, env: EnvSpec) -> None:
    gateway = Answering()
    async with await backend.start(env, net=NetPolicy(gateway=gateway)) as sandbox:
        said = await sandbox.exec("echo $WAY_OUT; exec 3<>/dev/tcp/127.0.0.1/4711; cat <&3; ls -A /mnt")
        assert said.output == b"http://127.0.0.1:4711\nhello from outside\n"
        assert (await sandbox.exec("exec 3<>/dev/tcp/192.0.2.1/80")).exit_code != 0
    assert gateway.closed
    async with await backend.start(env) as sandbox:
        assert (await sandbox.exec("exec 3<>/dev/tcp/127.0.0.1/4711")).exit_code != 0
