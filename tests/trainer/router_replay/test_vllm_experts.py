"""Experts in vLLM's form become ours; what it cannot report is refused before a token is sampled."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest

from trainer.inference.contract import GenerateRequest
from trainer.inference.errors import BadRequest
from trainer.inference.vllm.api import parse_response, request_body
from trainer.inference.vllm.streaming import BadAnswer


def npy(array: np.ndarray) -> str:
    file = io.BytesIO()
    np.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


def body(**choice: object) -> dict:
    logprobs = {"content": [{"logprob": -0.5}] * 3}
    return {"choices": [{"token_ids": [4, 5, 6], "logprobs": logprobs, "finish_reason": "stop", **choice}]}


def test_rows_from_the_asked_position_on_are_taken() -> None:
    rows = np.arange(7 * 2 * 2, dtype=np.uint8).reshape(
        7, 2, 2
    )  # five tokens of prompt, three sampled, the last not read
    answer = parse_response(body(routed_experts=npy(rows)), before=1, experts_from=4)
    assert answer.experts is not None and (answer.experts.start, answer.experts.stop) == (4, 7)
    assert (answer.experts.unpack() == rows[4:]).all()
    assert parse_response(body(routed_experts=npy(rows)), before=1).experts is None
    assert parse_response(body(), before=1, experts_from=0).experts is None


@pytest.mark.parametrize(
    "text", ["%", base64.b64encode(b"no array").decode(), npy(np.zeros((3, 2))), npy(np.full((1, 1, 1), -1))]
)
def test_experts_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(BadAnswer, match="routed experts that cannot be read"):
        parse_response(body(routed_experts=text), before=1, experts_from=0)


def test_narrowed_sampling_is_refused_with_its_remedy() -> None:
    with pytest.raises(BadRequest, match=r"sampling.top_p to 1"):
        request_body(GenerateRequest(prompt_ids=[1], max_tokens=1, top_p=0.9), "m", "salt")
    assert request_body(GenerateRequest(prompt_ids=[1], max_tokens=1, temperature=0.0, top_p=0.9), "m", "salt")
