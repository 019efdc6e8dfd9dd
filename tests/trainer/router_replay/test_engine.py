"""The embedded engine samples from policies with experts, and says which experts and which open tokens it used."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.router_replay import moe
from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.factory import build_decoder, build_weights
from trainer.inference.embedded.hf_moe import LibraryShape
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.speculative import Drafter
from trainer.inference.errors import ServerError
from trainer.policy.names import checkpoint_state
from trainer.router_replay.hooks import Recorder

LIMITS = Limits(max_context=128, max_num_seqs=6, prefill_tokens=16)


def runner_of(model: torch.nn.Module, *, ahead: int = 0) -> Runner:
    """`ahead`: draft tokens, by a head that is mostly wrong."""
    shape = LibraryShape.from_config(model.config.to_dict())
    decoder = build_decoder(shape, checkpoint_state(model, model.state_dict()), LIMITS.max_context)
    runner = Runner(LIMITS)
    drafter = Drafter(MultiToken(shape.hidden_size, 8), ahead, decoder.loops) if ahead else None
    runner.install(decoder, make_cache(decoder, LIMITS), 0, drafter)
    return runner


def generate(runner: Runner, requests: list[GenerateRequest], *, swap: tuple[int, object] | None = None):
    """Answers in order; `swap` exchanges the weights after so many steps."""
    answers: dict[int, GenerateResponse | ServerError] = {}
    for index, request in enumerate(requests):
        runner.submit(Job(request, float("inf"), lambda answer, index=index: answers.__setitem__(index, answer)))
    for step in range(1000):
        if swap and step == swap[0]:
            runner.swap(swap[1], 1)
        if runner.step() < 0:
            break
    assert all(isinstance(answer, GenerateResponse) for answer in answers.values()), answers
    return [answers[index] for index in range(len(requests))]


@torch.no_grad()
def reference(model, prompt: list[int], answer: GenerateResponse, temperature: float) -> torch.Tensor:
    logits = model(torch.tensor([prompt + answer.token_ids])).logits[0] / temperature
    table = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    return table.gather(-1, torch.tensor(answer.token_ids)[:, None])[:, 0]


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize("family", ["qwen3-moe", "mixtral", "deepseek-v3"])
def test_experts_of_every_position_are_those_of_the_library(family: str, ahead: int) -> None:
    model = moe.make(family)
    runner = runner_of(model, ahead=ahead)
    prompts = [row[:length].tolist() for row, length in zip(moe.tokens(5, 40), (3, 40, 9, 21, 9), strict=True)]
    prompts[4] = prompts[2]  # shares its prefill
    asked = [
        GenerateRequest(prompt_ids=prompt, max_tokens=7, temperature=0.9, seed=i, experts_from=0)
        for i, prompt in enumerate(prompts)
    ]
    answers = generate(runner, asked)
    recorder = Recorder(model)
    for prompt, answer in zip(prompts, answers, strict=True):
        wanted = reference(model, prompt, answer, 0.9)
        assert float((torch.tensor(answer.logprobs) - wanted).abs().max()) < 1e-4
        assert answer.experts is not None and answer.experts.rows == len(prompt) + 6
        assert (answer.experts.unpack() == recorder.chosen()[:-1].numpy()).all()
    assert answers[4].reused_tokens == len(prompts[4]) - 1
    assert runner.drafter is None or 0 <= runner.drafter.accepted < runner.drafter.drafted


@pytest.mark.parametrize("ahead", [0, 3])
def test_a_turn_sends_the_experts_of_what_it_read_and_a_swap_keeps_the_old_ones(ahead: int) -> None:
    model, other = moe.make("qwen3-moe"), moe.make("qwen3-moe", seed=1)
    runner = runner_of(model, ahead=ahead)
    prompt = moe.tokens(1, 20)[0].tolist()
    first = generate(runner, [GenerateRequest(prompt_ids=prompt, max_tokens=5, seed=1, session="s", experts_from=0)])[0]
    assert runner.decoder is not None
    newer = build_weights(runner.decoder.shape, checkpoint_state(other, other.state_dict()))
    longer = [*prompt, *first.token_ids, 5, 6, 7]
    asked = GenerateRequest(prompt_ids=longer, max_tokens=6, seed=2, session="s", experts_from=first.experts.stop)
    second = generate(runner, [asked], swap=(2, newer))[0]
    assert second.reused_tokens == first.experts.stop == 24
    assert [span.version for span in second.spans] == [0, 1]
    assert (second.experts.start, second.experts.stop) == (24, len(longer) + 5)
    recorder = Recorder(model)
    with torch.no_grad():
        model(torch.tensor([longer + second.token_ids]))
    old = second.spans[0].end
    assert (
        second.experts.unpack()[: len(longer) + old - 25] == recorder.chosen()[24 : len(longer) + old - 1].numpy()
    ).all()


@pytest.mark.parametrize(("top_k", "top_p"), [(5, 1.0), (0, 0.6), (4, 0.9), (1, 1.0), (0, 1e-9)])
def test_narrowed_sampling_reports_what_was_open_and_log_probabilities_of_that(top_k: int, top_p: float) -> None:
    model = moe.make("mixtral")
    prompt = moe.tokens(1, 12)[0].tolist()
    asked = GenerateRequest(prompt_ids=prompt, max_tokens=30, temperature=1.3, top_k=top_k, top_p=top_p, seed=3)
    answer = generate(runner_of(model), [asked])[0]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer.token_ids])).logits[0] / 1.3
    table = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    assert answer.support is not None
    for row, token, logprob, ids in zip(table, answer.token_ids, answer.logprobs, answer.support.unpack(), strict=True):
        assert token in ids and len(ids) <= (top_k or moe.VOCAB)
        inside, outside = row[ids], row[[i for i in range(moe.VOCAB) if i not in ids]]
        assert float(inside.min()) >= float(outside.max()) - 1e-4  # the likeliest are open
        assert float(inside.exp().sum()) >= top_p - 1e-4 or len(ids) == top_k
        assert float(inside.exp().sum() - inside.min().exp()) < top_p + 1e-4  # and no more than needed
        assert logprob == pytest.approx(float(row[token] - inside.logsumexp(0)), abs=1e-4)


def test_greedy_and_full_sampling_report_no_support() -> None:
    runner = runner_of(moe.make("mixtral"))
    for request in (
        GenerateRequest(prompt_ids=[1, 2], max_tokens=3, temperature=0.0, top_k=2),
        GenerateRequest(prompt_ids=[1, 2], max_tokens=3),
    ):
        answer = generate(runner, [request])[0]
        assert answer.support is None and answer.experts is None
