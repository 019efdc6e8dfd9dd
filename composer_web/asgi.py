"""ASGI entry: HTTP through Django, the gateway's answers by a shorter way, one websocket address for live hints."""

from __future__ import annotations

import os
from typing import Any, cast

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "composer_web.settings")

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.urls import path, re_path

from composer_web.core.network import one_thread

http = one_thread.application()

from composer_web.core.network.proxies import behind_proxies  # noqa: E402
from composer_web.env import env  # noqa: E402
from composer_web.gateway.serving.handler import PATH, AnswersHandler  # noqa: E402 (needs the app registry)
from composer_web.gateway.serving.startup import lifespan  # noqa: E402
from composer_web.runs.live.consumer import HintConsumer  # noqa: E402
from composer_web.warm import warm  # noqa: E402

warm()

answers = AnswersHandler()


async def by_path(scope: Any, receive: Any, send: Any) -> None:
    await (answers if scope["path"] == PATH else http)(scope, receive, send)


async def nowhere(scope: Any, receive: Any, send: Any) -> None:
    """Refuses a websocket at an address that has none: closed before it is accepted, it is answered with 403."""
    await send({"type": "websocket.close", "code": 4404})


# Channels routes to applications, where Django's types expect views.
websockets: list[Any] = [path("ws/live", HintConsumer.as_asgi()), re_path("", cast(Any, nowhere))]
application = behind_proxies(
    ProtocolTypeRouter(
        {
            "http": by_path,
            "lifespan": lifespan,
            "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websockets))),
        }
    ),
    env().trusted_proxies,
)
