"""Hints: after a commit, a small message `{topic, seq}` tells open pages to reload the changed data.

Nothing is lost when a hint is: pages also fetch on connect and now and then. So publishing never fails a
service; a broker that is down is logged once a minute.
"""

from __future__ import annotations

import logging
import re
import time

import redis
from channels_redis.serializers import registry
from django.conf import settings
from django.db import transaction

from composer_web.env import env

log = logging.getLogger(__name__)

TOPIC = re.compile(
    r"^(runs|rollouts|evals|suites|tasks|reviews|findings|environments|ops|alerts|datasets|policies|promotion|usage|"
    r"(?:run|eval|group|tokens|suite|log):[0-9]{1,18})$"
)

_client: redis.Redis | None = None
_warned = 0.0


def group_name(topic: str) -> str:
    """Channel-layer group of a topic (letters, digits, hyphens, underscores and periods only)."""
    return "live." + topic.replace(":", ".")


def hint(*topics: str, since: int | None = None) -> None:
    """Publish a hint for each topic once the current transaction commits (at once outside of one). `since` says that only
    metrics changed, none of them before that step."""
    for topic in topics:
        assert TOPIC.fullmatch(topic), f"unknown live topic {topic!r}"
    transaction.on_commit(lambda: publish(*topics, since=since), robust=True)


def publish(*topics: str, since: int | None = None) -> None:
    """Send now, over one connection that this process keeps: `async_to_sync(group_send)` would open one a call."""
    global _client, _warned
    if _client is None:
        _client = redis.Redis.from_url(env().redis_url, socket_timeout=2.0, socket_connect_timeout=2.0)
    # The clock in microseconds: grows across restarts of everything, needs no round trip.
    seq = time.time_ns() // 1000
    serializer = registry.get_serializer("msgpack")
    try:
        pipe = _client.pipeline(transaction=False)
        for topic in topics:
            message = serializer.serialize({"type": "live.hint", "topic": topic, "seq": seq, "since": since})
            pipe.publish(f"{settings.CHANNEL_PREFIX}__group__{group_name(topic)}", message)
        pipe.execute()
    except redis.RedisError as error:
        if time.monotonic() - _warned > 60:
            _warned = time.monotonic()
            log.warning(
                "live hints are not sent (%s): pages refresh on their own timers until the broker answers", error
            )
