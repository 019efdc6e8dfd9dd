"""Whatever a client sends, the gateway answers it in OpenAI's shape, and never with a fault of its own."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from composer_web.gateway import configuration
from tests.web.gateway.test_gateway import Gateway, gateway, promoted

__all__ = ["gateway", "promoted"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)

TEXT = st.text(max_size=30) | st.sampled_from(["<|im_end|>", "<tool_call>", "\ud800", "\0", "{}", "[", "production"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CALL = {"id": "c", "type": "function", "function": {"name": "grep", "arguments": '{"a": 1}'}}
SOUND: dict[str, Any] = {
    "model": "production",
    "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "nothing", "tool_call_id": "c"},
        {"role": "user", "content": "go on"},
    ],
    "tools": [{"type": "function", "function": {"name": "grep", "description": "find", "parameters": {}}}],
    "max_tokens": 2,
    "temperature": 1,
    "top_p": 0.9,
    "seed": 1,
    "stop": ["x"],
    "user": "ada",
    "metadata": {"session_id": "s"},
}

STREAMED = {**SOUND, "stream": True}


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything within."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(found for key, one in inner for found in paths(one, (*at, key)))]


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """A sound request, some of whose parts are anything, are gone, or are there under another name."""
    body = json.loads(json.dumps(SOUND))
    body["stream"] = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        *there, last = draw(st.sampled_from(paths(body)[1:]))
        parent = body
        for key in there:
            parent = parent[key]
        change = draw(st.sampled_from(["other", "gone", "more"]))
        if change == "other":
            parent[last] = draw(ANY)
        elif change == "gone":
            del parent[last]
        elif isinstance(parent, dict):
            parent[draw(TEXT)] = draw(ANY)
        if not isinstance(body, dict) or len(paths(body)) < 2:
            break
    return body


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed() | ANY)
@example(SOUND)
@example(STREAMED)
def test_any_request_is_answered_in_the_clients_shape(promoted: Gateway, body: Any) -> None:
    configuration.change(values={"requests_per_minute": 1_000_000})
    answer = httpx.post(
        f"{promoted.url}/v1/chat/completions",
        content=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {promoted.secret}"},
        trust_env=False,
        timeout=60,
    )
    assert answer.status_code < 500, answer.text
    assert answer.status_code == 200 or body not in (SOUND, STREAMED)
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["message"] and error["type"] in ("invalid_request_error", "rate_limit_error")
    elif answer.headers["Content-Type"].startswith("text/event-stream"):
        *parts, done = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
        assert done == "[DONE]" and all("error" not in json.loads(part) for part in parts)
    else:
        assert answer.json()["choices"][0]["finish_reason"] in ("stop", "length", "tool_calls")
