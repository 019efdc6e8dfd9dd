"""A language model says instructions in other words: what it may and may not change, against a real HTTP answer."""

import json

import httpx
import pytest

from sandbox.tasks.generators.instructions import Evidence
from sandbox.tasks.generators.rewriting import RewriteFailed, Rewriter

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
