"""A streamed answer from the client library through gateway and router to engines, each of them a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.trainer.inference.conftest import router, wait_for
from tests.web.gateway import test_gateway
from tests.web.gateway.test_gateway import GREEDY, MESSAGES, TOOLS, Gateway
from trainer.inference.client import InferenceAdmin
from trainer.inference.contract import DeploymentStatus
from trainer.inference.embedded.serving.process import EmbeddedServer, ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
gateway, promoted = test_gateway.gateway, test_gateway.promoted
SECONDS = 60.0
SESSION = {"X-OpenComposer-Session": "s-1"}


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EmbeddedServer]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(EmbeddedServer(tmp_path_factory.mktemp(name))) for name in ("first", "second")]


@pytest.fixture(scope="module")
def engine(engines: list[EmbeddedServer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """What the gateway of `test_gateway` asks: here the router, once it sees both engines."""
    with router(tmp_path_factory.mktemp("router"), [one.url for one in engines]) as server:
        with InferenceAdmin(server.url) as admin:
            wait_for(lambda: all(one.ok for one in admin.health().servers), "the router sees both engines", SECONDS)
        yield server


def served(engine: EmbeddedServer, name: str) -> DeploymentStatus | None:
    with InferenceAdmin(engine.url) as admin:
        return next((status for status in admin.deployments() if status.name == name), None)


def made(engines: list[EmbeddedServer], name: str) -> list[int]:
    """Tokens by engine."""
    found = [served(engine, name) for engine in engines]
    return [status.generated_tokens if status else 0 for status in found]


def streamed(gateway: Gateway) -> str:
    parts = gateway.client().chat.completions.create(
        messages=MESSAGES, stream=True, extra_headers=SESSION, timeout=SECONDS, **GREEDY
    )
    return "".join(part.choices[0].delta.content or "" for part in parts)


def test_a_stream_says_what_the_whole_answer_says(promoted: Gateway, engines: list[EmbeddedServer]) -> None:
    name = f"gateway-{promoted.policy.pk}-0"
    client = promoted.client()
    whole: Any = client.chat.completions.create(messages=MESSAGES, tools=TOOLS, **GREEDY).choices[0].message
    assert all(served(engine, name) for engine in engines), "both may be asked"
    before = made(engines, name)
    with client.chat.completions.stream(
        messages=MESSAGES, tools=TOOLS, stream_options={"include_usage": True}, extra_headers=SESSION, **GREEDY
    ) as stream:
        streaming: Any = stream.get_final_completion()
    (call,), (again,) = whole.tool_calls, streaming.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == (again.function.name, again.function.arguments)
    assert streaming.system_fingerprint == "base@0"
    grown = sorted(after - old for after, old in zip(made(engines, name), before, strict=True))
    assert grown[0] == 0 and grown[1] >= streaming.usage.completion_tokens > 5, "its pieces stay with their keys"
    text = client.chat.completions.create(messages=MESSAGES, **GREEDY).choices[0].message.content
    assert streamed(promoted) == text


def test_a_stream_outlives_its_engine(promoted: Gateway, engine: ServerProcess, engines: list[EmbeddedServer]) -> None:
    """The engine that has the session's keys is stopped before the next stream, is asked, and is killed."""
    name = f"gateway-{promoted.policy.pk}-0"
    text = streamed(promoted)
    before = made(engines, name)
    assert streamed(promoted) == text
    (holds,) = [e for e, old, new in zip(engines, before, made(engines, name), strict=True) if new > old]
    (other,) = [e for e in engines if e is not holds]
    with InferenceAdmin(holds.url) as admin:
        admin.pause(name)
    had = made([other], name)

    def asked() -> bool:
        status = served(holds, name)
        return status is not None and status.running + status.waiting > 0

    with ThreadPoolExecutor(1) as pool, InferenceAdmin(engine.url) as admin:
        answer = pool.submit(streamed, promoted)
        try:
            wait_for(asked, "the stopped engine is asked", SECONDS)
            holds.kill()
            assert answer.result(SECONDS) == text
            assert made([other], name) > had
        finally:
            holds.kill()
            holds.start()
        wait_for(lambda: sum(name in one.deployment for one in admin.health().servers) == 2, "it is back", SECONDS)
