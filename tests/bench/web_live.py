"""Many pages watch one run: how late its points are, whether any is lost, what the server needs, and a restart.

A watcher does what the run page does: one websocket that subscribes to the run's topic, and on each hint the requests of
the parts and panels in sight (`PARTS`, `PANELS`), at most twice a second, one refresh at a time. The run gets a step of
NAMES metrics RATE times a second from a process of its own, each committed before the next. A step's delay for a watcher is
the time from its commit to the first answer that has it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Origin

from composer_web.runs.panels import RL
from scripts.stack import ports

if TYPE_CHECKING:  # its models cannot be imported in the publishing process before Django is set up
    from tests.bench.web_data import World

NAMES, RATE = 40, 50
INTERVAL = 0.5
"""Seconds between refreshes of a page, as js/live.js has it."""
BUCKETS = 240
PARTS = ("head", "status", "events", "timing")
PANELS = tuple(panel.keys for panel in RL[:6])
"""In sight of a window of 1280 × 900."""
SHOWN = "reward/mean"
READY_SECONDS, QUIET_SECONDS = 60.0, 60.0


@dataclass(slots=True)
class Watcher:
    """One page. `first` is when each step was first in an answer, `order` that its steps never went back."""

    first: dict[int, float] = field(default_factory=dict)
    newest: int = 0
    in_order: bool = True
    values: list[dict[str, float]] = field(default_factory=list)
    failures: int = 0
    connects: int = 0


def measure(arguments: argparse.Namespace, world: World) -> dict[str, float]:
    from django.conf import settings
    from django.test import Client

    from composer_web.runs.models import Run

    visitor = Client()
    visitor.force_login(world.user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={visitor.cookies[settings.SESSION_COOKIE_NAME].value}"
    run = Run.objects.filter(state="running").exclude(pk=world.largest).values_list("pk", flat=True)[1]
    return asyncio.run(_measure(run, cookie, arguments))


async def _measure(run: int, cookie: str, arguments: argparse.Namespace) -> dict[str, float]:
    port = ports.any_free()
    server = await serve(port)
    watchers = [Watcher() for _ in range(arguments.watchers)]
    pages = [asyncio.create_task(_page(watcher, run, port, cookie)) for watcher in watchers]
    try:
        await _until(lambda: all(watcher.values for watcher in watchers), "every page has its first values")
        began, used = time.monotonic(), _cpu(server.pid)
        committed = await _publish(run, steps=int(arguments.seconds * RATE))
        cores = (_cpu(server.pid) - used) / (time.monotonic() - began)
        last = max(committed)
        await _until(lambda: all(watcher.newest >= last for watcher in watchers), "every page shows the last step")
        late = sorted(watcher.first[step] - at for watcher in watchers for step, at in committed.items())
        lost = await _differing(watchers, run, port, cookie)
        connects = sum(watcher.connects for watcher in watchers)
        server.kill()
        server.wait()
        stopped = time.monotonic()
        server = await serve(port)
        later = await _publish(run, steps=RATE, first=last + 1)
        await _until(lambda: all(watcher.newest >= max(later) for watcher in watchers), "every page is back")
        back = time.monotonic() - stopped
        lost += await _differing(watchers, run, port, cookie)
    finally:
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
        with contextlib.suppress(ProcessLookupError):
            server.send_signal(signal.SIGTERM)
        server.wait(20)
    return {
        "live_p95_ms": round(late[math.ceil(0.95 * len(late)) - 1] * 1000, 1),
        "live_p50_ms": round(late[len(late) // 2] * 1000, 1),
        "live_lost": float(lost + sum(not watcher.in_order for watcher in watchers)),
        "live_cores": round(cores, 2),
        "live_connects": float(connects),
        "restart_seconds": round(back, 1),
    }


async def serve(port: int) -> subprocess.Popen[bytes]:
    """The web server as the product starts it. Raises TimeoutError."""
    command = [
        *(sys.executable, "-m", "uvicorn", "composer_web.asgi:application", "--host", "127.0.0.1"),
        *("--port", str(port), "--no-access-log", "--log-level", "warning"),
    ]
    server = subprocess.Popen(command)
    async with httpx.AsyncClient() as client:

        async def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return (await client.get(f"http://127.0.0.1:{port}/login/")).status_code < 500
            return False

        end = time.monotonic() + READY_SECONDS
        while not await answers():
            if time.monotonic() > end:
                server.kill()
                raise TimeoutError(f"the web server did not answer within {READY_SECONDS:.0f} s")
            await asyncio.sleep(0.05)
    return server


async def _page(watcher: Watcher, run: int, port: int, cookie: str) -> None:
    """A page for ever: connect, refresh on hints, come back with jitter when the connection is lost."""
    base = f"http://127.0.0.1:{port}"
    limits = httpx.Limits(max_connections=6)  # as browsers have them to one host
    async with httpx.AsyncClient(base_url=base, headers={"Cookie": cookie}, limits=limits, timeout=30) as client:
        while True:
            try:
                async with connect(
                    f"ws://127.0.0.1:{port}/ws/live", additional_headers={"Cookie": cookie}, origin=Origin(base)
                ) as socket:
                    watcher.connects += 1
                    await socket.send(json.dumps({"subscribe": [f"run:{run}"]}))
                    await _watch(socket, watcher, client, run)
            except (OSError, WebSocketException, httpx.TransportError):
                watcher.failures += 1
            await asyncio.sleep(0.25 + random.random() * 0.5)


async def _watch(socket: ClientConnection, watcher: Watcher, client: httpx.AsyncClient, run: int) -> None:
    """Refresh at most every INTERVAL; what is said meanwhile makes one more refresh. Ends with the connection."""
    said = asyncio.Event()

    async def listen() -> None:
        async for text in socket:
            if {"topic", "subscribed"} & json.loads(text).keys():
                said.set()

    async def refresh() -> None:
        while True:
            await said.wait()
            said.clear()
            began = time.monotonic()
            await _fetch(watcher, client, run)
            await asyncio.sleep(max(0.0, INTERVAL - (time.monotonic() - began)))

    tasks = [asyncio.create_task(listen()), asyncio.create_task(refresh())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _fetch(watcher: Watcher, client: httpx.AsyncClient, run: int) -> None:
    """All requests of a refresh, side by side; the first panel shows SHOWN."""
    parts = [client.get(f"/runs/{run}/part/{part}/") for part in PARTS]
    panels = [
        client.get(f"/runs/{run}/metrics/?{urlencode({'keys': ','.join(keys), 'buckets': BUCKETS, 'axis': 'step'})}")
        for keys in PANELS
    ]
    answers = await asyncio.gather(*panels, *parts)
    at = time.time()
    for answer in answers:
        answer.raise_for_status()
    rows = answers[0].json()["series"][SHOWN]
    newest = max((row["step"] for row in rows), default=0)
    watcher.in_order &= newest >= watcher.newest
    for step in range(watcher.newest + 1, newest + 1):
        watcher.first[step] = at
    watcher.newest, watcher.values = newest, rows


async def _differing(watchers: list[Watcher], run: int, port: int, cookie: str) -> int:
    """Pages that hold something else than a fresh fetch gives."""
    truth = Watcher()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={"Cookie": cookie}, timeout=30) as client:
        await _fetch(truth, client, run)
    return sum(watcher.values != truth.values for watcher in watchers)


async def _publish(run: int, *, steps: int, first: int = 1_001) -> dict[int, float]:
    """When each step was committed, by a process of its own. Raises RuntimeError when it dies."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_commit, args=(theirs, run, first, steps), daemon=True)
    process.start()
    theirs.close()
    try:
        committed: dict[int, float] = await asyncio.to_thread(ours.recv)
    except EOFError:
        raise RuntimeError("the publishing process ended without a word; its error is above") from None
    process.join(20)
    return committed


def _commit(pipe: Connection, pk: int, first: int, steps: int) -> None:
    import django

    django.setup()
    from composer_web.runs import metrics
    from composer_web.runs.models import Run

    run = Run.objects.get(pk=pk)
    names = [SHOWN, *(f"metric/{n}" for n in range(1, NAMES))]
    committed = {}
    began = time.monotonic()
    for index in range(steps):
        time.sleep(max(0.0, began + index / RATE - time.monotonic()))
        metrics.record(run=run, step=first + index, values=dict.fromkeys(names, random.random()))
        committed[first + index] = time.time()
    pipe.send(committed)


async def _until(true: Callable[[], bool], what: str) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + QUIET_SECONDS
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {QUIET_SECONDS:.0f} s: {what}")
        await asyncio.sleep(0.05)


def _cpu(pid: int) -> float:
    """User and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
