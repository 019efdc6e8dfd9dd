"""Receives hints for one server process: a single subscription for all open pages.

A burst on a topic becomes one message, written once for all sockets, at most every `INTERVAL` seconds. Feeds
(`runs/live/feed.py`) hear each hint at once.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from channels.layers import get_channel_layer

from composer_web.live.hints import group_name

INTERVAL = 0.25
"""With the half second between two refreshes of an element (js/live.js), a page shows a new state within a second."""
Hearing = Callable[[dict[str, Any]], None]


class Listener(Protocol):
    def offer(self, topic: str, text: str) -> None:
        """Send a hint when the socket takes it. Never waits."""


class Hub:
    """Subscriptions of one event loop. `join` and `leave` return once the subscription has changed."""

    def __init__(self) -> None:
        self._layer = get_channel_layer()
        self._lock = asyncio.Lock()
        self._sockets: defaultdict[str, set[Listener]] = defaultdict(set)
        self._feeds: defaultdict[str, set[Hearing]] = defaultdict(set)
        self._joined: set[str] = set()
        self._said: dict[str, int] = {}
        self._news = asyncio.Event()
        self._channel = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, topic: str, listener: Listener) -> None:
        self._sockets[topic].add(listener)
        await self._settle(topic)

    async def leave(self, topic: str, listener: Listener) -> None:
        self._sockets[topic].discard(listener)
        await self._settle(topic)

    async def hear(self, topic: str, hearing: Hearing) -> None:
        """Call `hearing` with each hint of the topic."""
        self._feeds[topic].add(hearing)
        await self._settle(topic)

    async def hush(self, topic: str, hearing: Hearing) -> None:
        self._feeds[topic].discard(hearing)
        await self._settle(topic)

    async def _settle(self, topic: str) -> None:
        """Subscribe to the topic if somebody wants it, else not."""
        async with self._lock:
            wanted = bool(self._sockets.get(topic) or self._feeds.get(topic))
            if wanted and topic not in self._joined:
                if not self._tasks:
                    self._channel = await self._layer.new_channel()
                    self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._flush())]
                await self._layer.group_add(group_name(topic), self._channel)
                self._joined.add(topic)
            elif not wanted:
                self._sockets.pop(topic, None)
                self._feeds.pop(topic, None)
                if topic in self._joined:
                    self._joined.discard(topic)
                    await self._layer.group_discard(group_name(topic), self._channel)

    async def _receive(self) -> None:
        while True:
            message = await self._layer.receive(self._channel)
            topic = message["topic"]
            for hearing in self._feeds.get(topic, ()):
                hearing(message)
            if topic in self._sockets:
                self._said[topic] = message["seq"]
                self._news.set()

    async def _flush(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            said, self._said = self._said, {}
            for topic, seq in said.items():
                text = json.dumps({"topic": topic, "seq": seq})
                for listener in self._sockets.get(topic, ()):
                    listener.offer(topic, text)
            await asyncio.sleep(INTERVAL)


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()


def hub() -> Hub:
    """The hub of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
