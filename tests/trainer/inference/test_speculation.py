"""Guessing ahead changes how fast tokens come, and neither which ones nor their log-probabilities."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from tests.trainer.inference import models
from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.factory import build_decoder, shape_of
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.embedded.speculative import Drafter, load_drafter
from trainer.inference.errors import ServerError, UnsupportedModel
from trainer.inference.mtp.distil import Distillation, Here, distil, windows
from trainer.inference.mtp.training import read_tokens, sampled
from trainer.policy.names import checkpoint_state

HOW = Distillation(ahead=3, width=32, steps=60, batch=8, learning_rate=1e-2)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """Sure enough of itself that some drafts are accepted."""
    made = models.make("qwen3")
    with torch.no_grad():
        made.model.norm.weight.mul_(2.0)
    return made


@pytest.fixture(scope="module")
def head(model: PreTrainedModel) -> MultiToken:
    return distil(Here(model), sampled(model, [[n % models.VOCAB] for n in range(64)], 40, 1.0), HOW)[0]


def run(
    model: PreTrainedModel, requests: list[GenerateRequest], head: MultiToken | None, *, compiled: bool = True
) -> tuple[list[GenerateResponse], Runner, int]:
    """Answers in order, and how many steps they took."""
    shape = shape_of(model.config.to_dict())
    state = checkpoint_state(model, model.state_dict())
    decoder = build_decoder(shape, state, shape.max_position_embeddings, compiled=compiled)
    runner = Runner(Limits(max_num_seqs=8, max_queue=len(requests)))
    drafter = Drafter(head, 3, decoder.loops) if head is not None else None
    runner.install(decoder, make_cache(decoder, runner.limits), 0, drafter)
    answers: dict[int, GenerateResponse | ServerError] = {}
    for number, request in enumerate(requests):
        runner.submit(Job(request, time.monotonic() + 60, lambda a, at=number: answers.update({at: a})))  # type: ignore[misc]
    steps = 0
    while runner.busy:
        assert runner.step() >= 0
        steps += 1
    found = [answers[number] for number in range(len(requests))]
    assert all(isinstance(answer, GenerateResponse) for answer in found), found
    return found, runner, steps  # type: ignore[return-value]


def asked(count: int, **fields: object) -> list[GenerateRequest]:
    made = {"max_tokens": 30, "temperature": 0.9} | fields
    return [GenerateRequest.model_validate(made | {"prompt_ids": [n % 97, 5, 7], "seed": n}) for n in range(count)]


def check(model: PreTrainedModel, request: GenerateRequest, answer: GenerateResponse) -> None:
    expected = models.logprobs(model, request.prompt_ids, answer.token_ids, request.temperature or 1.0)
    assert (expected - torch.tensor(answer.logprobs)).abs().max() < 1e-4


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_tokens_and_log_probabilities_are_those_without_drafts(
    model: PreTrainedModel, head: MultiToken, temperature: float, compiled: bool
) -> None:
    requests = asked(12, temperature=temperature)  # more than slots: some wait
    plain, _, plain_steps = run(model, requests, None, compiled=compiled)
    drafted, runner, steps = run(model, requests, head, compiled=compiled)
    assert [a.token_ids for a in drafted] == [a.token_ids for a in plain]
    for request, answer in zip(requests, drafted, strict=True):
        check(model, request, answer)
    assert runner.drafter is not None and runner.drafter.accepted > 0.05 * runner.drafter.drafted
    assert steps < plain_steps and runner.generated == sum(len(a.token_ids) for a in drafted)


def test_limits_stop_tokens_sessions_and_narrowed_requests_hold(model: PreTrainedModel, head: MultiToken) -> None:
    plain, _, _ = run(model, asked(6), None)
    stops = [answer.token_ids[7] for answer in plain]
    cut, _, _ = run(model, [r.model_copy(update={"stop_ids": [s]}) for r, s in zip(asked(6), stops, strict=True)], head)
    for answer, whole, stop in zip(cut, plain, stops, strict=True):
        assert answer.token_ids == whole.token_ids[: whole.token_ids.index(stop) + 1]
    for most in (1, 2, 3, 4):
        assert [a.token_ids for a in run(model, asked(3, max_tokens=most), head)[0]] == [
            answer.token_ids[:most] for answer in plain[:3]
        ]
    full = GenerateRequest(prompt_ids=[3] * 250, max_tokens=50, seed=1)  # the context holds 256
    assert run(model, [full], head)[0][0].token_ids == run(model, [full], None)[0][0].token_ids
    mask_logits = asked(4, top_k=3)
    answers, runner, _ = run(model, mask_logits, head)
    assert [a.token_ids for a in answers] == [a.token_ids for a in run(model, mask_logits, None)[0]]
    assert runner.drafter is not None and runner.drafter.drafted == 0


def test_the_sampled_distribution_is_the_policys(model: PreTrainedModel, head: MultiToken) -> None:
    """Second and third token after one prompt, 3000 times, against the exact joint distribution: chi² below its 99.9 %."""
    count, prompt = 3000, [9, 5, 7]
    requests = [GenerateRequest(prompt_ids=prompt, max_tokens=4, temperature=0.7, seed=n) for n in range(count)]
    answers, runner, _ = run(model, requests, head)
    assert runner.drafter is not None and runner.drafter.accepted > 0
    first = Counter(answer.token_ids[0] for answer in answers).most_common(1)[0][0]
    after = [answer.token_ids[1] for answer in answers if answer.token_ids[0] == first]
    with torch.no_grad():
        p_V = torch.softmax(model(torch.tensor([[*prompt, first]])).logits[0, -1] / 0.7, -1)
    seen, n = Counter(after), len(after)
    big = [v for v in range(models.VOCAB) if float(p_V[v]) * n >= 5]
    cells = [(seen[v], float(p_V[v]) * n) for v in big]
    rest = n - sum(expected for _, expected in cells)
    if rest >= 5:
        cells.append((n - sum(found for found, _ in cells), rest))
    chi2 = sum((found - expected) ** 2 / expected for found, expected in cells)
    freedom = len(cells) - 1
    assert n > 200 and freedom >= 2
    assert chi2 < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3  # Wilson and Hilferty


def test_distillation_lowers_the_loss_and_repeats(model: PreTrainedModel) -> None:
    sequences = sampled(model, [[n] for n in range(32)], 30, 1.0)
    short = Distillation(ahead=2, width=32, steps=2, batch=8)
    _, untrained = distil(Here(model), sequences, short)
    head, trained = distil(Here(model), sequences, HOW)
    assert trained < 0.9 * untrained
    again, _ = distil(Here(model), sequences, HOW)
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), again.parameters(), strict=True))


def test_a_head_is_kept_beside_its_policy_and_refused_for_another(
    model: PreTrainedModel, head: MultiToken, tmp_path: Path
) -> None:
    shape = DecoderShape.from_config(model.config.to_dict())
    decoder = build_decoder(shape, model.state_dict(), 64)
    assert load_drafter(tmp_path, decoder, 3) is None
    head.save(tmp_path)
    loaded = load_drafter(tmp_path, decoder, 3)
    assert loaded is not None and torch.equal(loaded.head.mix.weight, head.mix.weight)
    assert load_drafter(tmp_path, decoder, 0) is None  # off by default
    with pytest.raises(UnsupportedModel, match="width 32, not 48"):
        MultiToken.load(tmp_path, 48)
    (tmp_path / "mtp" / "mtp.safetensors").write_bytes(b"nothing")
    with pytest.raises(UnsupportedModel, match="train it again"):
        MultiToken.load(tmp_path, 32)


def test_windows_of_what_was_said_and_read(tmp_path: Path) -> None:
    file = tmp_path / "work.jsonl"
    file.write_text('{"tokens": [1, 2, 3], "loss_mask": [0, 1, 1]}\n{"tokens": [4, 5]}\n')
    assert windows(read_tokens(file, 6), 2) == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="5 tokens do not fill a window of 6"):
        windows(read_tokens(file, 6), 6)
    with pytest.raises(ValueError, match=r"work\.jsonl:2: a token id is outside \[0, 5\)"):
        windows(read_tokens(file, 5), 2)
    file.write_text('{"tokens": [1]}\n{"text": "a"}\n')
    with pytest.raises(ValueError, match=r"work\.jsonl:2: a line is"):
        windows(read_tokens(file, 6), 1)
