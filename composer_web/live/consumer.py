"""The one websocket of a page: subscribe to topics, receive coalesced hints.

In:  {"subscribe": ["run:3", "runs"]} · {"unsubscribe": [...]} · {"ping": 1}
Out: {"hello": {"interval": 0.5}} · {"topic": "run:3", "seq": 1700000000000000} · {"pong": 1} · {"error": {...}}

At most one hint a topic goes out every `INTERVAL` seconds, always the newest, so a slow page never queues.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from channels.generic.websocket import AsyncJsonWebsocketConsumer

from composer_web.live.hints import TOPIC, group_name

INTERVAL = 0.5
MAX_TOPICS = 32
MAX_FRAME = 4096


class HintConsumer(AsyncJsonWebsocketConsumer):
    async def connect(self) -> None:
        self.topics: set[str] = set()
        self.pending: dict[str, int] = {}
        self.flusher: asyncio.Task[None] | None = None
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(code=4401)
            return
        await self.accept()
        await self.send_json({"hello": {"interval": INTERVAL}})
        self.flusher = asyncio.create_task(self._flush_for_ever())

    async def disconnect(self, code: int) -> None:
        if self.flusher is not None:
            self.flusher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.flusher
        for topic in self.topics:
            await self.channel_layer.group_discard(group_name(topic), self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        if text_data is None or len(text_data) > MAX_FRAME:
            await self._refuse("frame", f"send JSON text of at most {MAX_FRAME} characters")
            return
        try:
            content = await self.decode_json(text_data)
        except ValueError:
            await self._refuse("json", "the message is not JSON")
            return
        await self.receive_json(content)

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        if not isinstance(content, dict):
            await self._refuse("message", 'send an object such as {"subscribe": ["runs"]}')
            return
        for topic in self._topics(content.get("unsubscribe")):
            if topic in self.topics:
                self.topics.discard(topic)
                await self.channel_layer.group_discard(group_name(topic), self.channel_name)
        for topic in self._topics(content.get("subscribe")):
            if not TOPIC.fullmatch(topic):
                await self._refuse("topic", f"unknown topic {topic[:80]!r}")
            elif len(self.topics) >= MAX_TOPICS and topic not in self.topics:
                await self._refuse("topics", f"at most {MAX_TOPICS} topics a connection")
            elif topic not in self.topics:
                self.topics.add(topic)
                await self.channel_layer.group_add(group_name(topic), self.channel_name)
                await self.send_json({"subscribed": topic})
        if "ping" in content:
            await self.send_json({"pong": 1})

    async def live_hint(self, message: dict[str, Any]) -> None:
        """From the channel layer: keep the newest sequence number of each topic until the next flush."""
        self.pending[message["topic"]] = message["seq"]

    async def _flush_for_ever(self) -> None:
        while True:
            pending, self.pending = self.pending, {}
            for topic, seq in pending.items():
                await self.send_json({"topic": topic, "seq": seq})
            await asyncio.sleep(INTERVAL)

    async def _refuse(self, code: str, message: str) -> None:
        await self.send_json({"error": {"code": code, "message": message}})

    @staticmethod
    def _topics(value: Any) -> list[str]:
        return [topic for topic in value if isinstance(topic, str)][:MAX_TOPICS] if isinstance(value, list) else []
