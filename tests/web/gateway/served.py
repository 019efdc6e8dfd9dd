"""The gateway over HTTP, in front of a real engine."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
import uvicorn
from django.db import connections

from composer_web.accounts.models import Role, User
from composer_web.accounts.services import create_token, create_user
from composer_web.env import REPOSITORY, env
from composer_web.gateway.serving import pipeline, routing, transcripts
from composer_web.policies.models import Policy
from composer_web.policies.services import import_base
from trainer.inference import transport
from trainer.inference.embedded.serving.process import EmbeddedServer

BASE = REPOSITORY / "policies" / "base"


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Gateway:
    """The product over HTTP, with somebody's token."""

    url: str
    owner: User
    secret: str
    policy: Policy

    def client(self, secret: str = "", **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=secret or self.secret, max_retries=0, **options)


@pytest.fixture
def gateway(db: None, engine: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    from composer_web.asgi import application

    monkeypatch.setattr(env(), "inference_url", engine.url)
    routing.policy_folders.clear()
    monkeypatch.setattr(pipeline, "known", transcripts.Transcripts())
    owner = create_user(username="agent", password="correct horse battery", role=Role.VIEWER)
    _, secret = create_token(user=owner, name="agent", scopes=["gateway"])
    server = Server(
        uvicorn.Config(
            application, host="127.0.0.1", port=0, log_level="warning", lifespan="off", http=transport.JoinedProtocol
        )
    )
    thread = threading.Thread(target=server.run, name="gateway", daemon=True)
    thread.start()
    end = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < end and thread.is_alive(), "the web server did not start"
        thread.join(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    policy = import_base(path=BASE, name="base", toy=True)
    yield Gateway(f"http://127.0.0.1:{port}", owner, secret, policy)
    server.should_exit = True
    thread.join(20)
    connections["default"].close_pool()
