"""The gateway as OpenAI's own client meets it: over HTTP, against the shipped policy in a real engine."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from composer_web.accounts.models import User
from composer_web.accounts.services import create_token, revoke_token
from composer_web.env import env
from composer_web.gateway import configuration
from composer_web.gateway.models import Session
from composer_web.gateway.serving import generating, pipeline, recording, routing
from composer_web.policies import endpoints
from composer_web.policies.promotion import services as promotion
from composer_web.policies.services import import_base, record_checkpoint
from sandbox.harness.profile import get_profile
from sandbox.harness.session import schemas_of
from sandbox.tasks.procedural import generate
from tests.chat_server import ChatServer, completion
from tests.web.gateway import served
from tests.web.gateway.served import BASE, Gateway
from trainer.inference.client import InferenceAdmin
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.policy.store import load
from trainer.realtime.sessions import sequences

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
gateway = served.gateway


def test_a_template_that_cannot_show_calls_answers_only_without_tools(gateway: Gateway, tmp_path: Path) -> None:
    """Promoted before templates were judged."""
    folder = Path(shutil.copytree(BASE, tmp_path / "old"))
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace('"arguments": ', '"parameters": '))
    import_base(path=folder, name="old")
    promotion.promote(reference="old@0")
    client = gateway.client()
    assert client.chat.completions.create(messages=MESSAGES, **GREEDY | {"max_tokens": 2}).usage
    for _ in range(2):
        with pytest.raises(openai.InternalServerError, match=r"'old' cannot play episodes: .* import the folder again"):
            client.chat.completions.create(messages=MESSAGES, tools=TOOLS, **GREEDY)


@pytest.fixture
def promoted(gateway: Gateway) -> Gateway:
    promotion.promote(reference="base@0")
    return gateway


TASK = generate(0, "train")
TOOLS: Any = schemas_of(get_profile("toy"))
MESSAGES: Any = [{"role": "user", "content": TASK.instruction}]
GREEDY: Any = {"model": "production", "temperature": 0, "max_tokens": 96}


def test_a_whole_answer_with_tool_calls(promoted: Gateway) -> None:
    client = promoted.client()
    answer = client.chat.completions.create(messages=MESSAGES, tools=TOOLS, **GREEDY)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    call: Any = choice.message.tool_calls[0]
    assert call.function.name == "grep" and '"pattern"' in call.function.arguments
    assert answer.system_fingerprint == "base@0"
    render = load(BASE).renderer
    assert answer.usage and answer.usage.prompt_tokens == len(render.start(MESSAGES, TOOLS))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    plain = client.chat.completions.create(messages=MESSAGES, **GREEDY).choices[0]
    assert plain.finish_reason == "stop" and (plain.message.content or "").startswith('{"name": "grep"')
    cut = client.chat.completions.create(messages=MESSAGES, **{**GREEDY, "max_tokens": 2}).choices[0]
    assert cut.finish_reason == "length"
    stopped = client.chat.completions.create(messages=MESSAGES, stop="arguments", **GREEDY).choices[0]
    assert stopped.finish_reason == "stop" and stopped.message.content == '{"name": "grep", "'
    for stop in ("arguments", "rgum", 'p", "', "}"):
        whole = client.chat.completions.create(messages=MESSAGES, stop=stop, **GREEDY).choices[0].message.content
        stream = client.chat.completions.create(messages=MESSAGES, stop=stop, stream=True, **GREEDY)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert streamed == whole and stop not in streamed


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_says_where_its_time_went(promoted: Gateway, stream: bool) -> None:
    """A stream counts until its first token. The clocks of engine, gateway and client agree."""
    ask = promoted.client().chat.completions.with_raw_response.create
    ask(messages=MESSAGES, stream=stream, **GREEDY)  # deploys
    began = time.perf_counter()
    answer = ask(messages=MESSAGES, stream=stream, **GREEDY)
    milliseconds = 1000 * (time.perf_counter() - began)
    found = re.fullmatch(r"engine;dur=([\d.]+), gateway;dur=([\d.]+)", answer.headers["Server-Timing"])
    assert found is not None
    assert float(found[1]) > 0.1 and float(found[1]) + float(found[2]) <= milliseconds


def test_a_stream_says_what_the_whole_answer_says(promoted: Gateway) -> None:
    client = promoted.client()
    whole = client.chat.completions.create(messages=MESSAGES, tools=TOOLS, **GREEDY).choices[0].message
    with client.chat.completions.stream(
        messages=MESSAGES, tools=TOOLS, stream_options={"include_usage": True}, **GREEDY
    ) as stream:
        streamed = stream.get_final_completion()
    assert whole.tool_calls and streamed.choices[0].message.tool_calls
    (call,), (again,) = whole.tool_calls, streamed.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == (again.function.name, again.function.arguments)  # type: ignore[union-attr]
    assert streamed.usage and streamed.usage.completion_tokens > 5
    parts = [
        part.choices[0].delta.content or ""
        for part in client.chat.completions.create(messages=MESSAGES, stream=True, **GREEDY)
    ]
    text = client.chat.completions.create(messages=MESSAGES, **GREEDY).choices[0].message.content
    assert "".join(parts) == text and len([part for part in parts if part]) > 2


def test_an_agent_goes_on_from_the_very_tokens(promoted: Gateway) -> None:
    """Three turns of an agent loop over the client library: the prompt of each begins with all tokens before it."""
    configuration.change(values={"recording": True})
    client = promoted.client()
    messages: list[Any] = list(MESSAGES)
    for turn in range(3):
        message = (
            client.chat.completions.create(
                messages=messages,
                tools=TOOLS,
                user="ada",
                metadata={"session_id": "s-1", "record": "yes"},
                **{**GREEDY, "temperature": 1.0, "seed": turn + 1},
            )
            .choices[0]
            .message
        )
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "mod.py:1:def f(x):"})
        if not message.tool_calls:
            messages.append({"role": "user", "content": "go on"})
    session = Session.objects.get()
    turns = recording.turns_of(session)
    assert (session.turns, session.policy_id, session.version, session.owner) == (
        3,
        promoted.policy.pk,
        0,
        promoted.owner,
    )
    assert [turn.base for turn in turns] == [None, 0, 1]
    assert all(len(turn.prompt_ids) < 60 for turn in turns[1:]), "only what came since"
    (stream,) = sequences(turns)
    assert len(stream.tokens) == sum(len(turn.prompt_ids) + len(turn.token_ids) for turn in turns)
    # What the trainer computes of these tokens is what the sampler said.
    import torch

    model = load(BASE).model
    with torch.no_grad():
        logits = model(torch.tensor([stream.tokens])).logits[0].log_softmax(-1)
    for place, mask in enumerate(stream.loss_mask):
        if mask:
            assert abs(float(logits[place - 1, stream.tokens[place]]) - stream.logprobs[place]) < 1e-3
    other = client.chat.completions.create(
        messages=messages[:1], tools=TOOLS, extra_headers={"X-OpenComposer-Session": "s-2"}, **GREEDY
    )
    assert other.choices and Session.objects.count() == 1, "nobody asked to record this one"


def test_nobody_goes_on_from_what_was_erased(promoted: Gateway) -> None:
    """The deletion reaches the web process through the database alone, as one by a command or another process does."""
    configuration.change(values={"recording": True})
    client = promoted.client()
    messages: list[Any] = list(MESSAGES)

    def turn() -> int | None:
        """What the recorded turn goes on from."""
        said = client.chat.completions.create(
            messages=messages, user="ada", metadata={"session_id": "s-9", "record": "yes"}, **GREEDY
        )
        messages.extend([said.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "go on"}])
        return recording.turns_of(Session.objects.get())[-1].base

    assert [turn(), turn()] == [None, 0]
    assert recording.erase(user="ada") == 1
    assert [turn(), turn()] == [None, 0], "rendered anew, and remembered from there"


def test_errors_in_the_clients_own_words(gateway: Gateway, people_token: Callable[..., str]) -> None:
    client = gateway.client()
    with pytest.raises(openai.InternalServerError, match="nothing is promoted yet") as nothing:
        client.chat.completions.create(messages=MESSAGES, model="production")
    assert nothing.value.code == "nothing_promoted"
    promotion.promote(reference="base@0")
    with pytest.raises(openai.AuthenticationError, match="scope `gateway`"):
        gateway.client("oc_wrong").models.list()
    with pytest.raises(openai.PermissionDeniedError, match="it has admin"):
        gateway.client(people_token("admin")).chat.completions.create(messages=MESSAGES, model="production")
    with pytest.raises(openai.NotFoundError, match="there are: production") as missing:
        client.chat.completions.create(messages=MESSAGES, model="gpt-9")
    assert missing.value.code == "model_not_found" and missing.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="n: the gateway offers only 1"):
        client.chat.completions.create(messages=MESSAGES, model="production", n=2)
    image: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    with pytest.raises(openai.BadRequestError, match=r"messages\.0\.content"):
        client.chat.completions.create(messages=image, model="production")
    with pytest.raises(openai.BadRequestError, match="maximum context length is 1024 tokens") as long:
        client.chat.completions.create(messages=[{"role": "user", "content": "word " * 3000}], model="production")
    assert long.value.code == "context_length_exceeded"
    for body in (b"{", b"[]", b"null", b'{"messages": 3}'):
        wrong = httpx.post(f"{gateway.url}/v1/chat/completions", content=body, trust_env=False)
        assert wrong.status_code == 400 and wrong.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(f"{gateway.url}/v1/chat/completions", trust_env=False).status_code == 400
    configuration.change(values={"requests_per_minute": 1})

    def three_times() -> None:  # at most one minute may begin in between
        for _ in range(3):
            client.chat.completions.create(messages=MESSAGES, model="production", max_tokens=1)

    with pytest.raises(openai.RateLimitError, match="1 times a minute") as often:
        three_times()
    assert 1 <= int(often.value.response.headers["retry-after"]) <= 60
    token = gateway.owner.tokens.get()
    revoke_token(token=token, by=gateway.owner)
    with pytest.raises(openai.AuthenticationError):
        client.models.list()


@pytest.fixture
def people_token(people: dict[str, User]) -> Callable[..., str]:
    return lambda role: create_token(user=people[role], name="t", scopes=[role if role == "admin" else "read"])[1]


def test_models_and_a_policy_behind_an_endpoint(promoted: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    def model(request: dict[str, Any]) -> tuple[int, Any]:
        if request["messages"][-1]["content"] == "fail":
            return 400, {"error": {"message": "no such thing", "code": "bad"}}
        calls = [("grep", {"pattern": "x"})] if request.get("tools") else []
        return completion(request, "" if calls else "It is done.", calls)

    with ChatServer(model, key="k") as there:
        monkeypatch.setattr(env(), "endpoint_hosts", "127.0.0.1")
        endpoints.add(name="outside", url=there.url, model="m", key="k")
        client = promoted.client()
        assert [row.id for row in client.models.list()] == ["production"]
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(messages=MESSAGES, model="outside")
        configuration.change(values={"endpoints": ["outside"], "recording": True})
        assert [row.id for row in client.models.list()] == ["production", "outside"]
        assert client.models.retrieve("outside").id == "outside"
        said = client.chat.completions.create(
            messages=MESSAGES, model="outside", metadata={"session_id": "o", "record": "1"}
        )
        assert said.choices[0].message.content == "It is done." and said.usage and said.usage.completion_tokens == 7
        parts = list(client.chat.completions.create(messages=MESSAGES, model="outside", tools=TOOLS, stream=True))
        assert parts[-1].choices[0].finish_reason == "tool_calls"
        with pytest.raises(openai.BadRequestError, match="no such thing"):
            client.chat.completions.create(messages=[{"role": "user", "content": "fail"}], model="outside")
    session = Session.objects.get()
    assert session.turns == 1 and sequences(recording.turns_of(session)) == []


def test_the_canary_has_its_share_and_a_rollback_counts_at_once(promoted: Gateway, engine: EmbeddedServer) -> None:
    record_checkpoint(policy=promoted.policy, version=1, path=BASE, final=False)
    promotion.canary(reference="base@1", share=0.3)
    client = promoted.client()

    def served(session: str) -> str:
        answer = client.chat.completions.create(
            messages=MESSAGES, model="production", max_tokens=1, extra_headers={"X-OpenComposer-Session": session}
        )
        return str(answer.system_fingerprint)

    by_name = {f"s{n}": served(f"s{n}") for n in range(12)}
    assert by_name == {
        name: "base@1" if routing.on_canary(f"{promoted.owner.pk}:{name}", 0.3) else "base@0" for name in by_name
    }
    assert set(by_name.values()) == {"base@0", "base@1"}
    assert all(served(name) == by_name[name] for name in list(by_name)[:4])
    shares = [sum(routing.on_canary(f"s{n}", share) for n in range(4000)) / 4000 for share in (0.05, 0.3)]
    assert shares == pytest.approx([0.05, 0.3], abs=0.03)
    promotion.promote(reference="base@1")
    assert {served(name) for name in by_name} == {"base@1"}
    promotion.rollback()
    assert {served(name) for name in by_name} == {"base@0"}
    with InferenceAdmin(engine.url) as admin:  # a restarted server that has forgotten is told again
        admin.remove(f"gateway-{promoted.policy.pk}-0")
    assert served("after") == "base@0"


def test_an_engine_that_is_away_is_said_within_the_deadline(promoted: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration.change(values={"answer_seconds": 1.0})
    monkeypatch.setattr(env(), "inference_url", "http://127.0.0.1:9")
    monkeypatch.setattr(pipeline.Here, "by_loop", type(pipeline.Here.by_loop)())
    began = time.monotonic()
    with pytest.raises(openai.InternalServerError) as away:
        promoted.client().chat.completions.create(messages=MESSAGES, model="production")
    assert away.value.code == "unavailable" and time.monotonic() - began < 30


@dataclass
class Lookups:
    """Each look-up of who may ask waits until the engine was asked, then does `before` and goes on."""

    asked: threading.Event
    before: Callable[[], object] = lambda: None
    waits: bool = True


@pytest.fixture
def lookups(promoted: Gateway, monkeypatch: pytest.MonkeyPatch) -> Lookups:
    promoted.client().chat.completions.create(messages=MESSAGES, **GREEDY)  # from here on it is known how it ends
    found = Lookups(threading.Event())
    really_ask, really_admit = generating.ask_engine, pipeline.admit_request

    async def ask(*given: Any) -> Any:
        found.asked.set()
        return await really_ask(*given)

    def admit(came: pipeline.Came) -> Any:
        assert not found.waits or found.asked.wait(60), "the engine is asked after the look-up only"
        found.before()
        return really_admit(came)

    monkeypatch.setattr(generating, "ask_engine", ask)
    monkeypatch.setattr(pipeline, "admit_request", admit)
    return found


def test_the_engine_is_asked_while_the_token_is_looked_up(promoted: Gateway, lookups: Lookups) -> None:
    client = promoted.client()
    whole = client.chat.completions.create(messages=MESSAGES, **GREEDY).choices[0].message.content
    parts = client.chat.completions.create(messages=MESSAGES, stream=True, **GREEDY)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole


def test_what_was_begun_for_a_token_that_is_gone_is_shown_to_nobody(promoted: Gateway, lookups: Lookups) -> None:
    token = promoted.owner.tokens.get()
    lookups.before = lambda: revoke_token(token=token, by=promoted.owner)
    with pytest.raises(openai.AuthenticationError):
        promoted.client().chat.completions.create(messages=MESSAGES, **GREEDY)
    lookups.asked.clear()
    lookups.before, lookups.waits = lambda: None, False
    with pytest.raises(openai.AuthenticationError):
        promoted.client().chat.completions.create(messages=MESSAGES, **GREEDY)
    assert not lookups.asked.is_set(), "from the second time on nothing is begun for it"


def test_what_was_begun_for_another_version_is_shown_to_nobody(promoted: Gateway, lookups: Lookups) -> None:
    record_checkpoint(policy=promoted.policy, version=1, path=BASE, final=False)
    lookups.before = lambda: promotion.promote(reference="base@1")
    assert promoted.client().chat.completions.create(messages=MESSAGES, **GREEDY).system_fingerprint == "base@1"


def test_nothing_is_begun_for_who_asks_too_often(promoted: Gateway, lookups: Lookups) -> None:
    configuration.change(values={"requests_per_minute": 1})
    client = promoted.client()
    lookups.waits = False
    for _ in range(3):  # at most one minute may begin in between
        lookups.asked.clear()
        with contextlib.suppress(openai.RateLimitError):
            client.chat.completions.create(messages=MESSAGES, **GREEDY)
    assert not lookups.asked.is_set()
