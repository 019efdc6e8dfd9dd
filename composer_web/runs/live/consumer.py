"""The single websocket of a page: topic hints, and changes of the runs that it shows.

In:  {"subscribe": ["run:3", "runs"]} · {"unsubscribe": [...]} · {"watch": [{"run": 12, "parts": true}]} · {"unwatch": [12]}
     · {"ping": 1}
Out: {"hello": {"interval": 0.5}} · {"subscribed": "run:3"} · {"topic": "run:3", "seq": 1700000000000000} · {"pong": 1}
     · {"error": {...}} · {"run": 12, ...} as `runs/live/feed.py` writes them

Who leaves a project while a page is open gets no more of it: what a connection follows is looked at again every `RECHECK`
seconds, and what its person no longer reaches ends as if it had been refused. The connection itself ends with the log-in
that opened it: logged out here or from elsewhere, password changed, account disabled. It is closed with 4401, like one that is
opened without a log-in or without the second factor that `OPENCOMPOSER_REQUIRE_MFA` asks for, and its page asks no more.

What one connection may ask for is bounded (`messages.py`); who asks for more is told so and closed with 4429. How many
connections a person has is bounded too (`counting.py`); one more is told so and closed with 4430, and its page asks again
much later. Whatever ends a connection, also a fault of ours, gives back what it held.

Texts wait for a slow page in a short queue. What does not fit of a feed is dropped, and the page gets everything once it
has taken the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from channels.db import DatabaseSyncToAsync
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.base import SessionBase
from django.db import DatabaseError
from django.utils.crypto import constant_time_compare
from redis.exceptions import RedisError

from composer_web.accounts.mfa_middleware import lacks_factor
from composer_web.accounts.models import User
from composer_web.accounts.permissions import may_follow, may_in, operates, reaches, with_places
from composer_web.core.errors import NotFound
from composer_web.live import counting
from composer_web.live.hints import TOPIC
from composer_web.live.hub import INTERVAL, hub
from composer_web.live.messages import MAX_TOPICS, Budget, Misunderstood, read
from composer_web.runs import selectors
from composer_web.runs.live import feed as feeds
from composer_web.runs.live.feed import Feed, Terms

log = logging.getLogger(__name__)

MAX_WAITING = 16
"""Texts that wait for a slow page."""
RECHECK = 10.0
"""Seconds between looks at the log-in of a connection and at what it may still follow."""


class HintConsumer(AsyncWebsocketConsumer):
    channel_layer_alias = ""  # the hub has the process' one subscription

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.counted: int | None = None
        self.topics: set[str] = set()
        self.budget, self.over = Budget(), False
        self.watched: dict[int, Feed] = {}
        self.behind: set[Feed] = set()
        self.waiting: deque[tuple[Feed, str]] = deque()
        self.hints: dict[str, str] = {}
        self.news = asyncio.Event()
        self.tasks: tuple[asyncio.Task[None], ...] = ()
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.leave_groups()

    async def connect(self) -> None:
        user = self.scope.get("user")
        await self.accept()  # a browser tells its page nothing about a connection that never was
        if (
            user is None
            or not user.is_authenticated
            or await DatabaseSyncToAsync(lacks_factor, thread_sensitive=False)(user, self.scope["session"])
        ):
            self.over = True
            await self.close(code=4401)
            return
        if not counting.admit(user.pk):
            self.over = True
            words = f"{counting.MAX} pages of yours are connected already: close some, this one then connects by itself"
            await self._refuse("connections", words)
            await self.close(code=4430)
            return
        self.counted = user.pk
        await self._say({"hello": {"interval": INTERVAL}})
        self.tasks = (asyncio.create_task(self._write()), asyncio.create_task(self._recheck()))

    async def leave_groups(self) -> None:
        if self.counted is not None:
            counting.let_go(self.counted)
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with contextlib.suppress(asyncio.CancelledError, OSError):  # it may have met the closed connection
                await task
        for topic in self.topics:
            await hub().leave(topic, self)
        for feed in self.watched.values():
            await feeds.leave(feed, self)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.over:
            return
        try:
            message = read(text_data)
        except Misunderstood as error:
            if await self._affords(1):
                await self._refuse(error.code, str(error))
            return
        if not await self._affords(1 + message.cost):
            return
        for topic in message.unsubscribe:
            if isinstance(topic, str) and topic in self.topics:
                self.topics.discard(topic)
                await hub().leave(topic, self)
        for topic in message.subscribe:
            await self._subscribe(topic)
        for pk in message.unwatch:
            if isinstance(pk, int):
                await self._unwatch(pk)
        for asked in message.watch:
            await self._watch(asked)
        if "ping" in message.model_fields_set:
            await self._say({"pong": 1})

    async def _affords(self, cost: int) -> bool:
        """Ends the connection of who asks for too much; a page comes back by itself."""
        if self.budget.take(cost):
            return True
        self.over = True
        await self._refuse("rate", "too much was asked for at once; connect again and ask for less")
        await self.close(code=4429)
        return False

    async def _subscribe(self, topic: Any) -> None:
        if not isinstance(topic, str) or not TOPIC.fullmatch(topic):
            await self._refuse("topic", f"unknown topic {str(topic)[:80]!r}")
        elif len(self.topics) >= MAX_TOPICS and topic not in self.topics:
            await self._refuse("topics", f"at most {MAX_TOPICS} topics a connection")
        elif ":" in topic and not await DatabaseSyncToAsync(may_follow, thread_sensitive=False)(
            self.scope["user"], topic
        ):
            await self._refuse("topic", f"there is no {topic} in a project of yours")
        elif topic not in self.topics:
            self.topics.add(topic)
            await hub().join(topic, self)
            await self._say({"subscribed": topic})

    async def _watch(self, asked: Any) -> None:
        pk = asked.get("run") if isinstance(asked, dict) else None
        if type(pk) is not int or not 0 < pk < 2**63:
            await self._refuse("watch", 'say which run: {"watch": [{"run": 12, "parts": true}]}')
        elif len(self.watched) >= feeds.MAX and pk not in self.watched:
            await self._refuse("watch", f"at most {feeds.MAX} runs a connection")
        else:
            try:
                may_operate = await DatabaseSyncToAsync(_may_operate, thread_sensitive=False)(self.scope["user"], pk)
            except NotFound as error:
                await self._refuse("watch", str(error))
                return
            terms = Terms(parts=asked.get("parts") is True, may_operate=may_operate)
            self.watched[pk] = await feeds.join(pk, self, terms)

    async def _recheck(self) -> None:
        """Closes also for somebody who may not log in any more."""
        while True:
            await asyncio.sleep(RECHECK)
            try:
                if not await self._end_lost():
                    return
            except (DatabaseError, RedisError):
                log.exception("what somebody may still follow cannot be looked up; next try in %.0f s", RECHECK)

    async def _end_lost(self) -> bool:
        """False when the connection was closed."""
        found = await DatabaseSyncToAsync(_looked_again, thread_sensitive=False)(
            self.scope["user"].pk,
            self.scope["session"].session_key,
            {topic for topic in self.topics if ":" in topic},
            list(self.watched),
        )
        if found is None:
            await self.close(code=4401)
            return False
        for topic in found.lost & self.topics:
            self.topics.discard(topic)
            self.hints.pop(topic, None)
            await hub().leave(topic, self)
            await self._refuse("gone", f"{topic} is in no project of yours any more")
        for pk, may_operate in found.runs.items():
            feed = self.watched.get(pk)
            if feed is None:
                continue
            if may_operate is None:
                await self._unwatch(pk)
                await self._refuse("gone", f"run {pk} is in no project of yours any more")
            elif feed.watchers[self].may_operate != may_operate:
                await feeds.join(pk, self, replace(feed.watchers[self], may_operate=may_operate))
        return True

    async def _unwatch(self, pk: int) -> None:
        if feed := self.watched.pop(pk, None):
            self.behind.discard(feed)
            self.waiting = deque(item for item in self.waiting if item[0] is not feed)
            await feeds.leave(feed, self)

    def offer(self, topic: str, text: str) -> None:
        """From the hub: the newest hint of a topic stands for all that a slow page has not taken."""
        self.hints[topic] = text
        self.news.set()

    def take(self, feed: Feed, text: str) -> None:
        if feed in self.behind:
            return
        if len(self.waiting) >= MAX_WAITING:
            self.waiting = deque(item for item in self.waiting if item[0] is not feed)
            self.behind.add(feed)
        else:
            self.waiting.append((feed, text))
        self.news.set()

    async def _write(self) -> None:
        while True:
            await self.news.wait()
            self.news.clear()
            while self.hints or self.waiting or self.behind:
                if self.hints:
                    text = self.hints.pop(next(iter(self.hints)))
                elif self.waiting:
                    _, text = self.waiting.popleft()
                else:
                    feed = self.behind.pop()
                    self.waiting.extend((feed, text) for text in feed.everything(self))
                    continue
                await self.send(text_data=text)

    async def _say(self, message: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(message))

    async def _refuse(self, code: str, message: str) -> None:
        await self._say({"error": {"code": code, "message": message}})


def _may_operate(user: User, pk: int) -> bool:
    """Whether a person may change the run. Raises NotFound for one that is not there, or in no project of his."""
    run = selectors.get_run(pk)
    if not may_follow(user, f"run:{pk}"):
        raise NotFound("run", pk)
    return may_in(user, run.project_id, "operator")


@dataclass(frozen=True, slots=True)
class Permitted:
    """What a person may follow now, of what he follows."""

    lost: set[str]
    """Topics that he does not reach."""
    runs: dict[int, bool | None]
    """Watched runs: whether he may change them; None for those that he does not reach."""


def _looked_again(user_pk: int, session: str | None, topics: set[str], runs: list[int]) -> Permitted | None:
    """None when the log-in is over, or lacks a second factor that is asked for. Two queries, and one for each thing where
    there are projects."""
    user = with_places(User.objects.filter(pk=user_pk, is_active=True)).first()
    if user is None:
        return None
    kept: SessionBase = import_module(settings.SESSION_ENGINE).SessionStore(session)
    if not _logged_in(user, kept) or lacks_factor(user, kept):
        return None
    return Permitted(
        {topic for topic in topics if not reaches(user, topic)}, {pk: operates(user, f"run:{pk}") for pk in runs}
    )


def _logged_in(user: User, kept: SessionBase) -> bool:
    """Whether the session is there and still signed for this person, as Django judges it at each request."""
    if str(kept.get(SESSION_KEY, "")) != str(user.pk):
        return False
    signed = str(kept.get(HASH_SESSION_KEY, ""))
    good = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return any(constant_time_compare(signed, one) for one in good)
