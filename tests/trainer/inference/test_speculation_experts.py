"""Speculative decoding for policies with experts: tokens, log-probabilities and experts are those without drafts.

A row's bits depend on its batch in the library's products, so a token or an expert that lies within the last bits of another
could differ; on these policies none does, and log-probabilities are compared up to 1e-4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch.nn import functional as F
from transformers import PreTrainedModel

from tests.trainer.inference.models import nudged
from tests.trainer.inference.test_speculation import asked, check, run
from tests.trainer.router_replay import moe
from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.factory import build_decoder, build_weights, shape_of
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.speculative import Drafter
from trainer.inference.errors import ServerError
from trainer.inference.mtp.distil import Distillation, Here, Lesson, distil, measure
from trainer.inference.mtp.training import sampled
from trainer.policy.names import checkpoint_state
from trainer.router_replay.hooks import Recorder

pytestmark = pytest.mark.integration

HOW = Distillation(ahead=3, width=32, steps=60, batch=8, learning_rate=1e-2)
NEXT = torch.randperm(moe.VOCAB, generator=torch.Generator().manual_seed(5))
"""The text that policies are taught: mostly, each token says which one comes next."""


@dataclass(frozen=True)
class Pupil:
    model: PreTrainedModel
    head: MultiToken
    before: Lesson
    after: Lesson
    """What a head that has learned nothing, and this one, draft on texts of the policy that neither has seen."""


def taught(family: str) -> PreTrainedModel:
    model = moe.make(family)
    draw = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for _ in range(80):
        columns = [torch.randint(moe.VOCAB, (16,), generator=draw)]
        for _ in range(11):
            other = torch.randint(moe.VOCAB, (16,), generator=draw)
            columns.append(torch.where(torch.rand(16, generator=draw) < 0.15, other, NEXT[columns[-1]]))
        rows = torch.stack(columns, 1)
        loss = F.cross_entropy(model(rows).logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module", params=["qwen3-moe", "mixtral", "deepseek-v3"])
def pupil(request: pytest.FixtureRequest) -> Pupil:
    model = taught(request.param)
    texts = sampled(model, [[n % moe.VOCAB] for n in range(64)], 40, 1.0)
    unseen, teacher = texts[:8], Here(model)
    head, _ = distil(teacher, texts[8:], HOW)
    untaught = MultiToken(teacher.hidden, HOW.width)
    return Pupil(model, head, measure(teacher, untaught, unseen, HOW), measure(teacher, head, unseen, HOW))


def wrong_head() -> MultiToken:
    """Its drafts are hardly ever accepted: what was read of them is written over."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        head = MultiToken(moe.BASE["hidden_size"], 16)
        torch.nn.init.normal_(head.back.weight, std=3.0)
    return head


def same(found: list[GenerateResponse], wanted: list[GenerateResponse]) -> None:
    """Experts by position, layer and place."""
    assert [a.token_ids for a in found] == [a.token_ids for a in wanted]
    assert [(a.finish_reason, a.reused_tokens) for a in found] == [(a.finish_reason, a.reused_tokens) for a in wanted]
    for mine, other in zip(found, wanted, strict=True):
        assert mine.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert mine.experts is not None and other.experts is not None
        assert (mine.experts.start, mine.experts.rows) == (other.experts.start, other.experts.rows)
        assert (mine.experts.unpack() == other.experts.unpack()).all()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_tokens_log_probabilities_and_experts_are_those_without_drafts(
    pupil: Pupil, temperature: float, compiled: bool
) -> None:
    requests = asked(12, temperature=temperature, experts_from=0)  # more than slots: some wait
    plain, _, plain_steps = run(pupil.model, requests, None, compiled=compiled)
    recorder = Recorder(pupil.model)
    for head in (pupil.head, wrong_head()):
        drafted, runner, steps = run(pupil.model, requests, head, compiled=compiled)
        same(drafted, plain)
        for request, answer in zip(requests, drafted, strict=True):
            check(pupil.model, request, answer)
            assert answer.experts is not None and answer.experts.rows == len(request.prompt_ids) + 29
            assert (answer.experts.unpack() == recorder.chosen()[:-1].numpy()).all()
        assert runner.drafter is not None and runner.drafter.drafted > 0
        share = runner.drafter.accepted / runner.drafter.drafted
        if head is pupil.head:
            assert share > 0.2 and steps < 0.8 * plain_steps
            assert share < 1 or temperature == 0  # of a text that runs by rote all may stand
        else:
            assert share < 0.1


def test_a_head_learns_to_draft_and_a_step_gives_more_than_a_token(pupil: Pupil) -> None:
    assert pupil.before.stood < 0.05  # chance is one in 97
    assert pupil.after.stood > 0.3 and pupil.after.loss < 0.5 * pupil.before.loss
    total = 0
    for seed in range(4):
        alone = GenerateRequest(prompt_ids=[1, 2, 3 + seed], max_tokens=120, temperature=0.9, seed=seed)
        _, runner, steps = run(pupil.model, [alone], pupil.head)
        assert runner.generated == 120
        total += steps
    assert 4 * 120 / total > 1.4, "half of the draft tokens stand"


def test_limits_stop_tokens_and_narrowed_requests_hold(pupil: Pupil) -> None:
    plain, _, _ = run(pupil.model, asked(6, experts_from=1), None)
    stops = [answer.token_ids[7] for answer in plain]
    cut = [r.model_copy(update={"stop_ids": [s]}) for r, s in zip(asked(6, experts_from=1), stops, strict=True)]
    same(run(pupil.model, cut, pupil.head)[0], run(pupil.model, cut, None)[0])
    for most in (1, 2, 3, 4):
        short = asked(3, max_tokens=most, experts_from=0)
        same(run(pupil.model, short, pupil.head)[0], run(pupil.model, short, None)[0])
    full = [GenerateRequest(prompt_ids=[3] * 250, max_tokens=50, seed=1, experts_from=200)]  # the context holds 256
    same(run(pupil.model, full, pupil.head)[0], run(pupil.model, full, None)[0])
    mask_logits, runner, _ = run(pupil.model, asked(4, top_k=3, experts_from=0), pupil.head)
    assert runner.drafter is not None and runner.drafter.drafted == 0
    same(mask_logits, run(pupil.model, asked(4, top_k=3, experts_from=0), None)[0])


def test_turns_of_a_session_copies_of_a_prompt_and_other_weights(pupil: Pupil) -> None:
    """What is kept in the cache between requests is of tokens that stood, too."""
    shape = shape_of(pupil.model.config.to_dict())

    def played(head: MultiToken | None) -> list[GenerateResponse]:
        decoder = build_decoder(shape, checkpoint_state(pupil.model, pupil.model.state_dict()), 256)
        runner = Runner(Limits(max_num_seqs=6))
        drafter = Drafter(head, 3, decoder.loops) if head is not None else None
        runner.install(decoder, make_cache(decoder, runner.limits), 0, drafter)
        prompts, told = [[9, 5, 7, n // 2] for n in range(6)], []  # pairs share a prompt
        for turn in range(3):
            if turn == 2:
                runner.swap(build_weights(shape, later), 1)
            found: dict[int, GenerateResponse | ServerError] = {}
            for n, prompt in enumerate(prompts):
                # All that was read so far is asked for again.
                asks = GenerateRequest(
                    prompt_ids=prompt, max_tokens=12, seed=10 * turn + n, session=f"s{n}", experts_from=0
                )
                runner.submit(Job(asks, float("inf"), partial(found.__setitem__, n)))
            while runner.busy:
                runner.step()
            answers = [answer for n in range(6) if isinstance(answer := found[n], GenerateResponse)]
            told += answers
            prompts = [[*p, *a.token_ids, 11] for p, a in zip(prompts, answers, strict=True)]
        assert runner.drafter is None or 0 < runner.drafter.accepted < runner.drafter.drafted
        return told

    other = type(pupil.model)(pupil.model.config)
    other.load_state_dict(pupil.model.state_dict())
    later = checkpoint_state(other, nudged(other, 1).state_dict())
    wanted, found = played(None), played(pupil.head)
    same(found, wanted)
    assert sum(answer.reused_tokens for answer in found[6:12]) == 6 * 15
    assert {span.version for answer in found[12:] for span in answer.spans} == {1}
