"""A language model says instructions in other words: what it may and may not change, against a real HTTP answer."""

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import httpx
import pytest

from sandbox.generators.building.builder import instruction_of
from sandbox.generators.building.drafts import Draft
from sandbox.generators.building.instructions import Evidence, reveals
from sandbox.generators.building.rewriting import RewriteFailed, Rewriter
from sandbox.generators.building.yields import Yield

SEEN = Evidence("shop", "t.py::test_a", "def test_a():\n    assert f() == 2", "assert 1 == 2", "E assert 1 == 2")
TEXT = "f is broken, getting `assert 1 == 2`\n"


def rewriter(answer: httpx.Response, asked: list[httpx.Request]) -> Rewriter:
    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answer

    return Rewriter("http://model/v1/", "m", key="secret", transport=httpx.MockTransport(reply))


def said(text: str) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"content": text}}], "usage": {"total_tokens": 17}})


async def test_another_wording_is_taken_with_its_cost():
    asked: list[httpx.Request] = []
    text, tokens = await rewriter(said("why `assert 1 == 2`?? fix f"), asked)(TEXT, SEEN)
    assert (text, tokens) == ("why `assert 1 == 2`?? fix f\n", 17)
    (request,) = asked
    assert (
        str(request.url) == "http://model/v1/chat/completions" and request.headers["Authorization"] == "Bearer secret"
    )
    assert json.loads(request.content)["messages"][1]["content"] == TEXT


@pytest.mark.parametrize(
    "answer", ["", "fix f", "`assert 1 == 2` " + "x" * 500], ids=["empty", "facts lost", "invented"]
)
async def test_an_answer_that_will_not_do_leaves_the_text(answer):
    assert await rewriter(said(answer), [])(TEXT, SEEN) == (TEXT, 17)


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(200, text="no"), httpx.Response(200, json={})])
async def test_an_endpoint_that_fails_is_named(answer):
    with pytest.raises(RewriteFailed, match="m did not rewrite"):
        await rewriter(answer, [])(TEXT, SEEN)


@pytest.fixture
def endpoint():
    """A server on this machine that speaks as OpenAI's does; what it was asked."""
    asked: list[dict[str, object]] = []

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(
                {"choices": [{"message": {"content": "`assert 1 == 2` again"}}], "usage": {"total_tokens": 5}}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked
    server.shutdown()
    thread.join()
    server.server_close()


async def test_the_same_text_is_asked_once(endpoint, tmp_path):
    url, asked = endpoint
    rewrite = Rewriter(url, "m", cache=tmp_path)
    assert await rewrite(TEXT, SEEN) == ("`assert 1 == 2` again\n", 5)
    assert await rewrite(TEXT, SEEN) == ("`assert 1 == 2` again\n", 0), "from the cache, at no cost"
    assert len(asked) == 1
    await Rewriter(url, "other", cache=tmp_path)(TEXT, SEEN)
    assert [one["model"] for one in asked] == ["m", "other"], "another model says it in its own words"


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        ("f gives `1`, not `2`", True),
        ("in f write return clamp(x)", False),
        ("f forgets to clamp what it gives", False),
    ],
    ids=["tells nothing", "a line of the oracle", "a name of the oracle"],
)
async def test_of_a_rewriting_that_tells_the_answer_only_its_cost_is_kept(answer, taken):
    draft = Draft(
        source="mutation", category="debug", operator="x", family="shop:shop.py:f", functions=("f",),
        broken={"shop.py": "def f(x):\n    return x\n"}, gold={"shop.py": "def f(x):\n    return clamp(x)\n"},
        expected=("t.py::test_a",),
    )  # fmt: skip

    async def rewrite(text: str, evidence: Evidence) -> tuple[str, int]:
        return answer, 7

    builder = SimpleNamespace(
        styles=("precise",), built=SimpleNamespace(name="shop"), rewrite=rewrite,
        found=Yield(generator="mutation", package="shop"), read={"t.py": "def test_a():\n    assert f(1) == 2\n"}.__getitem__,
    )  # fmt: skip
    messages = {"t.py::test_a": "def test_a():\n>   assert f(1) == 2\nE   assert 1 == 2\n"}
    told = await instruction_of(builder, draft, messages, random.Random(1))
    assert isinstance(told, str) and (told == answer) == taken and "clamp" not in told
    assert ("This check used to pass" in told) == (not taken) and builder.found.model_tokens == 7


def test_names_of_the_oracle_and_of_hidden_tests_are_not_told():
    gold, begin = {"a.py": "def f(x):\n    return clamp(x)\n"}, {"a.py": "def f(x):\n    return x\n"}
    assert reveals("f is broken, use clamp", "f is broken", gold, begin) == "clamp"
    assert reveals("f fails in test_edge", "f is broken", gold, begin, ("t.py::T::test_edge[1]",)) == "test_edge"
    assert reveals("please return what f should", "f is broken", gold, begin) == ""
    assert reveals("clamp it", "clamp is missing in f", gold, begin) == "", "what was told before is no leak"
