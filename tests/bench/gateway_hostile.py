"""The part of `make bench NAME=gateway` that sends the largest bodies: how long everybody else waits for the web process.

One token sends bodies of the largest size over four connections: long texts, and the JSON that costs most to parse, validate,
render or tokenise. Meanwhile the health endpoint, which needs no database, is asked over and over. `hostile_stall_ms` is
its longest wait. Senders are a process of their own, so that their work does not delay the clock.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import Connection

import httpx

CONNECTIONS = 4
EVERY = 0.01
"""Seconds between two questions to the health endpoint."""
HEALTH = "/api/v1/health/live"


def bodies() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each hostile body, none above the bound by more than its envelope."""
    from composer_web.gateway.openai_types import MAX_BODY  # the product reads its environment when it is imported

    room = MAX_BODY - 4096

    def said(*messages: object, **rest: object) -> bytes:
        return json.dumps({"model": "production", "messages": messages, "max_tokens": 1, **rest}).encode()

    def user(text: str) -> dict[str, object]:
        return {"role": "user", "content": text}

    def call(arguments: str) -> dict[str, object]:
        function = {"name": "f", "arguments": arguments}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }

    yield "words", said(user("word " * (room // 5)))
    yield "one word", said(user("x" * room))
    yield "spaces", said(user(" " * room))
    yield "escapes", said(user("\u00e9" * (room // 6)))
    yield "control tokens", said(user("<|end|>" * (room // 7)))
    yield "messages", said(*[user("x" * 380)] * 9_999)
    yield "turns", said(*[user("x" * 180), {"role": "assistant", "content": "y" * 180}] * 4_999, user("z"))
    yield "parts", said({"role": "user", "content": [{"type": "text", "text": ""}] * (room // 32)})
    yield "empty lists", said(user("x"), zz=[]).replace(b'"zz": []', b'"zz": [' + b"[]," * (room // 3) + b"1]")
    yield "numbers", said(user("x"), zz=[]).replace(b'"zz": []', b'"zz": [' + b"1," * (room // 2) + b"1]")
    yield "names", said(user("x"), zz={f"{n:x}": 1 for n in range(room // 14)})
    yield "deep", said(user("x"), zz=[]).replace(b"[]", b"[" * (room // 2) + b"]" * (room // 2), 1)
    yield "quotes", said(user('"\\' * (room // 4)))
    yield "arguments", said(*[call("[" + "{}," * (room // 12) + "1]")] * 4, user("x"))
    yield "tools", said(user("x"), tools=[{"type": "function", "function": {"name": "f", "description": "d" * room}}])
    yield "stops", said(user("word " * (room // 5)), stop=["word"])


def measure(url: str, secret: str, *, seconds: float) -> dict[str, float]:
    """Metrics. Raises SystemExit when no hostile body was answered, or one with a fault of the server's own."""
    quiet = _waits(url, time.monotonic() + min(5.0, seconds))
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    senders = multiprocessing.get_context("spawn").Process(
        target=_send, args=(url, secret, seconds, theirs), daemon=True
    )
    senders.start()
    ours.recv()  # bodies are made and the first is on its way
    waits = _waits(url, time.monotonic() + seconds)
    answered: Counter[int] = ours.recv()
    senders.join(30)
    if not answered or any(status >= 500 and status != 503 for status in answered):
        raise SystemExit(f"the gateway answered the hostile bodies with {dict(answered)}")
    ordered = sorted(waits)
    return {
        "hostile_stall_ms": 1000 * ordered[-1],
        "hostile_health_ms_p95": 1000 * ordered[int(0.95 * (len(ordered) - 1))],
        "hostile_answers": sum(answered.values()),
        "quiet_health_ms_max": 1000 * max(quiet),
    }


def _waits(url: str, end: float) -> list[float]:
    waits = []
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        while time.monotonic() < end:
            began = time.perf_counter()
            client.get(HEALTH).raise_for_status()
            waits.append(time.perf_counter() - began)
            time.sleep(EVERY)
    return waits


def _send(url: str, secret: str, seconds: float, told: Connection) -> None:
    made = list(bodies())
    end, turn, answered = time.monotonic() + seconds, count(), Counter[int]()

    def sender() -> None:
        bearer = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        with httpx.Client(base_url=url, trust_env=False, timeout=120, headers=bearer) as client:
            while time.monotonic() < end:
                _, body = made[next(turn) % len(made)]
                answered[client.post("/v1/chat/completions", content=body).status_code] += 1

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        running = [pool.submit(sender) for _ in range(CONNECTIONS)]
        told.send("begun")
        for one in running:
            one.result()
    told.send(answered)
