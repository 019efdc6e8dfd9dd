"""Many pages watch one run: how late its points are, whether any is lost, what the server needs, and a restart.

A watcher does what the run page does (js/live.js, js/stream.js): one websocket that subscribes to the run's topic and watches
the run, and takes over what it is told. The run gets a step of NAMES metrics RATE times a second from a process of its own,
each committed before the next. A step's delay for a watcher is the time from its commit to the message that has it. What the
pages hold in the end (every headline series, and parts of the page) is compared with fresh requests.
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
import orjson
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Origin

from composer_web.runs.charts.panels import headline
from scripts.stack import ports
from trainer.inference import transport

if TYPE_CHECKING:  # its models cannot be imported in the publishing process before Django is set up
    from tests.bench.web.web_data import World

NAMES, RATE = 40, 50
PARTS = ("events", "groups", "evals")
"""Parts of the page that are compared; the others say how long ago something was."""
SHOWN = "reward/mean"
READY_SECONDS, QUIET_SECONDS = 240.0, 120.0


@dataclass(slots=True)
class Watcher:
    """One page. `first` is when each step was first in a message, `in_order` that its steps never went back."""

    first: dict[int, float] = field(default_factory=dict)
    newest: int = 0
    in_order: bool = True
    seq: int | None = None
    series: dict[str, list[list[float]]] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    connects: int = 0
    gaps: int = 0
    wholes: int = 0
    """Times that it was told everything."""
    heard: int = 0
    """Characters."""

    def take(self, text: str | bytes) -> bool:
        """Take over a message; False when it does not build on what is here."""
        at = time.time()
        self.heard += len(text)
        message = orjson.loads(text)
        self.parts |= message.get("parts", {})
        if "seq" not in message or "run" not in message:
            return True
        if message["base"] is None:
            self.series = {}
            self.wholes += 1
        elif message["base"] != self.seq:
            self.gaps += 1
            return False
        self.seq = message["seq"]
        for name, (kept, rest) in message.get("series", {}).items():
            self.series[name] = [*self.series.get(name, [])[:kept], *rest]
        newest = int(self.series[SHOWN][-1][0]) if self.series.get(SHOWN) else 0
        self.in_order &= newest >= self.newest
        for step in range(self.newest + 1, newest + 1):
            self.first[step] = at
        self.newest = newest
        return True


def measure(arguments: argparse.Namespace, world: World) -> dict[str, float]:
    from django.conf import settings
    from django.db.models import Max
    from django.test import Client

    from composer_web.runs.models import Metric, Run

    visitor = Client()
    visitor.force_login(world.user)
    cookie = f"{settings.SESSION_COOKIE_NAME}={visitor.cookies[settings.SESSION_COOKIE_NAME].value}"
    run = Run.objects.filter(state="running").exclude(pk=world.largest).values_list("pk", flat=True)[1]
    newest = Metric.objects.filter(run=run, key__name=SHOWN).aggregate(newest=Max("step"))["newest"] or 0
    return asyncio.run(_measure(run, newest + 1, cookie, arguments))


async def _measure(run: int, first: int, cookie: str, arguments: argparse.Namespace) -> dict[str, float]:
    port = ports.any_free()
    server = await serve(port)
    watchers = [Watcher() for _ in range(arguments.watchers)]
    pages = [asyncio.create_task(_page(watcher, run, port, cookie)) for watcher in watchers]
    try:
        await _until(lambda: all(watcher.series for watcher in watchers), "every page has its first values")
        began = used = told = 0.0

        def clock() -> None:
            nonlocal began, used, told
            began, used, told = time.monotonic(), _cpu(server.pid), sum(watcher.heard for watcher in watchers)

        committed = await _publish(run, first=first, steps=int(arguments.seconds * RATE), clock=clock)
        took = time.monotonic() - began
        cores = (_cpu(server.pid) - used) / took
        told = sum(watcher.heard for watcher in watchers) - told
        last = max(committed)
        await _until(lambda: all(watcher.newest >= last for watcher in watchers), "every page shows the last step")
        late = sorted(watcher.first[step] - at for watcher in watchers for step, at in committed.items())
        lost = await _differing(watchers, run, port, cookie)
        connects = sum(watcher.connects for watcher in watchers)
        server.kill()
        server.wait()
        stopped = time.monotonic()
        held = [watcher.wholes for watcher in watchers]
        server = await serve(port)
        answered = time.monotonic()
        await _until(
            lambda: all(w.wholes > before for w, before in zip(watchers, held, strict=True)), "every page is back"
        )
        back = time.monotonic()
        later = await _publish(run, first=last + 1, steps=RATE, clock=lambda: None)
        await _until(lambda: all(watcher.newest >= max(later) for watcher in watchers), "every page goes on")
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
        "live_gaps": float(sum(watcher.gaps for watcher in watchers)),
        "live_kb_per_page_second": round(told / 1000 / arguments.watchers / took, 1),
        "live_steps_per_s": round(len(committed) / took, 1),
        "restart_seconds": round(back - stopped, 1),
        "reconnect_seconds": round(max(0.0, back - answered), 1),
    }


async def serve(port: int) -> subprocess.Popen[bytes]:
    """The web server as the product starts it. Raises TimeoutError."""
    command = [
        *(sys.executable, "-m", "uvicorn", "composer_web.asgi:application", "--host", "127.0.0.1"),
        *("--port", str(port), "--no-access-log", "--log-level", "warning", "--http", transport.NAME),
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
    """A page for ever: connect, take what is said, come back with jitter when the connection is lost."""
    base = f"http://127.0.0.1:{port}"
    ask = json.dumps({"watch": [{"run": run, "parts": True}]})
    attempts = 0
    while True:
        try:
            async with connect(
                f"ws://127.0.0.1:{port}/ws/live",
                additional_headers={"Cookie": cookie},
                origin=Origin(base),
                max_size=None,
            ) as socket:
                watcher.connects += 1
                attempts = 0
                await socket.send(ask)
                await socket.send(json.dumps({"subscribe": [f"run:{run}"]}))
                async for text in socket:
                    if not watcher.take(text):
                        await socket.send(ask)
        except (OSError, WebSocketException):
            watcher.failures += 1
        await asyncio.sleep(0.25 + random.random() * min(15.0, 0.5 * 2**attempts))
        attempts += 1


async def _differing(watchers: list[Watcher], run: int, port: int, cookie: str) -> int:
    """Pages that hold something else than fresh requests give."""
    base = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=base, headers={"Cookie": cookie}, timeout=30) as client:
        shown = await asyncio.to_thread(_shown, run)
        query = urlencode({"keys": ",".join(shown), "axis": "step"})
        found = (await client.get(f"/runs/{run}/metrics/?{query}")).raise_for_status().json()["series"]
        parts = {part: (await client.get(f"/runs/{run}/part/{part}/")).raise_for_status().text for part in PARTS}
    truth = {n: [[row[k] for k in ("step", "min", "max", "last")] for row in rows] for n, rows in found.items()}
    return sum(
        watcher.series != truth or any(watcher.parts.get(part) != html for part, html in parts.items())
        for watcher in watchers
    )


def _shown(run: int) -> list[str]:
    """What its page draws."""
    from composer_web.runs.models import Run

    latest = Run.objects.only("latest").get(pk=run).latest
    return [key for panel in headline("rl", latest) for key in panel.shown]


async def _publish(run: int, *, first: int, steps: int, clock: Callable[[], None]) -> dict[int, float]:
    """When each step was committed, by a process of its own; `clock` is called when it begins. Raises RuntimeError when it
    dies."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_commit, args=(theirs, run, first, steps), daemon=True)
    process.start()
    theirs.close()
    try:
        await asyncio.to_thread(ours.recv)
        clock()
        ours.send("go")
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
    pipe.send("ready")
    pipe.recv()
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
