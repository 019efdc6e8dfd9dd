"""The engine against the library: same log-probabilities, whatever is batched, cached or swapped."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import torch

from tests.trainer.inference import models
from tests.trainer.router_replay import moe
from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.cache import block_bytes
from trainer.inference.embedded.factory import build_decoder, read_shape
from trainer.inference.embedded.hf_moe import LibraryShape
from trainer.inference.embedded.model import Weights
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.embedded.verify import verify_weights
from trainer.inference.errors import BadRequest, QueueFull, ServerError, UnsupportedModel
from trainer.inference.verify_weights import WeightMismatch
from trainer.policy.names import checkpoint_state
from trainer.weights.probe import measure_model

BLOCK_BYTES = block_bytes(2, 2, 16, None)
"""Of `models.BASE`."""


class Harness:
    """A runner stepped by hand."""

    def __init__(self, family: str, limits: Limits | None = None, version: int = 0, *, compiled: bool = True) -> None:
        self.hf = models.make(family)
        shape = DecoderShape.from_config(self.hf.config.to_dict())
        decoder = build_decoder(shape, self.hf.state_dict(), shape.max_position_embeddings, compiled=compiled)
        self.runner = Runner(limits or Limits())
        self.runner.install(decoder, make_cache(decoder, self.runner.limits), version)
        self.answers: dict[int, GenerateResponse | ServerError] = {}

    def submit(self, number: int, prompt: list[int], **fields: object) -> Job:
        wanted = {"max_tokens": 12, "seed": number, "temperature": 0.9} | fields
        request = GenerateRequest.model_validate({"prompt_ids": prompt} | wanted)
        job = Job(request, time.monotonic() + 60, lambda answer: self.answers.__setitem__(number, answer))
        self.runner.submit(job)
        return job

    def finish(self) -> dict[int, GenerateResponse]:
        while self.runner.busy:
            assert self.runner.step() >= 0
        answers, self.answers = self.answers, {}
        for answer in answers.values():
            assert isinstance(answer, GenerateResponse), answer
        return answers  # type: ignore[return-value]

    def check(self, prompt: list[int], answer: GenerateResponse, temperature: float = 0.9) -> None:
        expected = models.logprobs(self.hf, prompt, answer.token_ids, temperature)
        assert (expected - torch.tensor(answer.logprobs)).abs().max() < 1e-4

    def swap(self, seed: int, version: int) -> None:
        self.hf = models.make("qwen3", seed)
        assert self.runner.decoder is not None
        self.runner.swap(Weights.build(self.runner.decoder.shape, self.hf.state_dict()), version)


def prompts(count: int, low: int = 1, high: int = 60, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(models.VOCAB) for _ in range(draw.randint(low, high))] for _ in range(count)]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_logprobs_equal_the_library_for_ragged_batches(family: str, compiled: bool) -> None:
    engine = Harness(family, Limits(max_num_seqs=5, prefill_tokens=37), compiled=compiled)  # chunks, waiting, evictions
    asked = prompts(12, high=120)
    for number, prompt in enumerate(asked):
        engine.submit(number, prompt)
    answers = engine.finish()
    assert len(answers) == len(asked)
    for number, prompt in enumerate(asked):
        assert answers[number].finish_reason == "length" and len(answers[number].token_ids) == 12
        engine.check(prompt, answers[number])


def test_turns_of_a_session_prefill_only_what_is_new() -> None:
    engine = Harness("qwen3", Limits(max_num_seqs=16))
    texts = dict(enumerate(prompts(6, low=20, high=40)))
    for turn in range(4):
        for number, text in texts.items():
            engine.submit(number, text, session=f"s{number}", max_tokens=3 + number)
        for number, answer in engine.finish().items():
            engine.check(texts[number], answer)
            if turn:
                assert answer.reused_tokens == len(texts[number]) - len(prompts(1, 5, 5, seed=turn - 1)[0]) - 1
            texts[number] = texts[number] + answer.token_ids + prompts(1, 5, 5, seed=turn)[0]


def test_a_session_that_turns_back_reuses_only_the_common_prefix() -> None:
    engine = Harness("qwen3")
    first = list(range(40))
    engine.submit(0, first, session="s")
    engine.finish()
    other = [*first[:25], 90, 91, 92]
    engine.submit(1, other, session="s")
    answer = engine.finish()[1]
    assert answer.reused_tokens == 25
    engine.check(other, answer)
    engine.submit(2, [5, 6, 7], session="s")
    answer = engine.finish()[2]
    assert answer.reused_tokens == 0
    engine.check([5, 6, 7], answer)


def test_a_group_prefills_its_prompt_once() -> None:
    engine = Harness("qwen3")
    prompt = prompts(1, 50, 50)[0]
    for number in range(8):
        engine.submit(number, prompt, session=f"s{number}")
    answers = engine.finish()
    assert sorted(a.reused_tokens for a in answers.values()) == [0] + [49] * 7
    assert len({tuple(a.token_ids) for a in answers.values()}) > 1
    for answer in answers.values():
        engine.check(prompt, answer)


def test_idle_sessions_are_evicted_oldest_first_and_come_back_right() -> None:
    engine = Harness("qwen3", Limits(max_num_seqs=3, kv_bytes=6 * BLOCK_BYTES))  # six blocks: three sessions
    texts = prompts(5, 20, 28)
    for number, text in enumerate(texts):
        engine.submit(number, text, session=f"s{number}", max_tokens=4)
        engine.finish()
    engine.submit(0, [*texts[4], 1, 2], session="s4")
    assert engine.finish()[0].reused_tokens == len(texts[4])
    engine.submit(0, [*texts[0], 1, 2], session="s0")
    answer = engine.finish()[0]
    assert answer.reused_tokens == 0
    engine.check([*texts[0], 1, 2], answer)


@pytest.mark.parametrize("compiled", [True, False])
def test_churn_keeps_every_sequence_apart(compiled: bool) -> None:
    """Many sessions of different lengths come and go, so that rows move between slots."""
    engine = Harness("qwen3-mqa", Limits(max_num_seqs=24, prefill_tokens=64), compiled=compiled)
    draw = random.Random(3)
    texts = dict(enumerate(prompts(30, 5, 40, seed=3)))
    asked: dict[int, list[int]] = {}
    turns = dict.fromkeys(texts, 0)
    while any(turns[n] < 3 for n in texts) or engine.runner.busy:
        for number in texts:
            if number not in asked and turns[number] < 3 and draw.random() < 0.3:
                asked[number] = list(texts[number])
                engine.submit(number, texts[number], session=f"s{number}", max_tokens=draw.randint(1, 12))
        engine.runner.step()
        for number, answer in list(engine.answers.items()):
            assert isinstance(answer, GenerateResponse)
            engine.check(asked.pop(number), answer)
            texts[number] += answer.token_ids + prompts(1, 1, 9, seed=number)[0]
            turns[number] += 1
            del engine.answers[number]


def test_a_prompt_is_found_after_its_session_went_on_with_another() -> None:
    engine = Harness("qwen3")
    first, second = [1, *prompts(1, 30, 30)[0]], [2, *prompts(1, 40, 40, seed=9)[0]]
    engine.submit(0, first, session="same")
    engine.finish()
    engine.submit(1, second, session="same")  # has no token in common with the first
    engine.finish()
    job = engine.submit(2, first)
    engine.check(first, engine.finish()[2])
    assert job.reused == 30


def test_the_seed_decides_whatever_shares_the_batch() -> None:
    engine = Harness("qwen3")
    prompt = prompts(1, 30, 30)[0]
    engine.submit(0, prompt, seed=5)
    alone = engine.finish()[0]
    for number, other in enumerate(prompts(9, seed=4), start=1):
        engine.submit(number, other)
    engine.submit(0, prompt, seed=5)
    assert engine.finish()[0].token_ids == alone.token_ids
    engine.submit(0, prompt, seed=6)
    assert engine.finish()[0].token_ids != alone.token_ids


def test_sampling_follows_the_distribution() -> None:
    prompt, count = [1, 2, 3], 4000
    engine = Harness("qwen3", Limits(max_num_seqs=64, max_queue=count))
    for number in range(count):
        engine.submit(number, prompt, max_tokens=1, temperature=1.5)
    drawn = torch.tensor([a.token_ids[0] for a in engine.finish().values()])
    logits = engine.hf(torch.tensor([prompt])).logits[0, -1].detach()
    expected = torch.softmax(logits / 1.5, -1)
    observed = torch.bincount(drawn, minlength=models.VOCAB) / len(drawn)
    assert (observed - expected).abs().sum() < 0.2


def test_greedy_takes_the_best_and_reports_it_at_temperature_one() -> None:
    engine = Harness("llama")
    prompt = prompts(1, 20, 20)[0]
    engine.submit(0, prompt, temperature=0.0, max_tokens=10)
    answer = engine.finish()[0]
    engine.check(prompt, answer, temperature=1.0)
    ids = torch.tensor([prompt + answer.token_ids])
    assert engine.hf(ids).logits[0, len(prompt) - 1 : -1].argmax(-1).tolist() == answer.token_ids


def test_stop_ids_end_a_turn_and_are_kept() -> None:
    engine = Harness("qwen3")
    prompt = prompts(1, 20, 20)[0]
    engine.submit(0, prompt, max_tokens=30)
    free = engine.finish()[0].token_ids
    stop = free[4]
    engine.submit(0, prompt, max_tokens=30, stop_ids=[stop, 96])
    answer = engine.finish()[0]
    assert answer.finish_reason == "stop" and answer.token_ids == free[: free.index(stop) + 1]


def test_the_context_bounds_generation() -> None:
    engine = Harness("qwen3")
    prompt = prompts(1, 250, 250)[0]
    engine.submit(0, prompt, max_tokens=50)
    answer = engine.finish()[0]
    assert answer.finish_reason == "length" and len(answer.token_ids) == 6
    engine.check(prompt, answer)
    for number, bad in enumerate(([1] * 256, [models.VOCAB], [-1])):
        engine.submit(number, bad)
    while engine.runner.busy:
        engine.runner.step()
    assert all(isinstance(a, BadRequest) for a in engine.answers.values()) and len(engine.answers) == 3


def test_how_full_the_cache_is() -> None:
    """By the blocks of running requests; what idle sessions keep can be had at any time."""
    engine = Harness("qwen3", Limits(max_num_seqs=4))
    assert engine.runner.scheduler is not None
    blocks = engine.runner.scheduler.cache.blocks
    assert blocks == 4 * 256 // 16
    for number in range(3):
        engine.submit(number, prompts(3, 20, 20)[number], max_tokens=9, session=f"s{number}")
    for _ in range(5):  # the prompts, and four tokens more of each
        engine.runner.step()
    engine.runner.look(100.0)
    assert engine.runner.kv_usage.peak(100.0) == 3 * 2 / blocks
    engine.finish()
    engine.runner.look(101.0)
    assert engine.runner.kv_usage.peak(101.0) == 3 * 2 / blocks, "the largest of ten seconds"
    assert engine.runner.kv_usage.peak(110.5) == 0.0
    assert engine.runner.kv_usage.peak(111.5) is None, "nobody looked"


def test_a_swap_in_flight_changes_the_version_from_one_token_to_the_next() -> None:
    engine = Harness("qwen3", version=3)
    prompt = prompts(1, 20, 20)[0]
    job = engine.submit(0, prompt, max_tokens=20, session="s")
    while len(job.token_ids) < 8:
        engine.runner.step()
    old = engine.hf
    engine.swap(seed=9, version=4)
    answer = engine.finish()[0]
    assert [(s.version, s.start, s.end) for s in answer.spans] == [(3, 0, 8), (4, 8, 20)]
    before = models.logprobs(old, prompt, answer.token_ids, 0.9)[:8]
    assert (before - torch.tensor(answer.logprobs[:8])).abs().max() < 1e-4
    again = [*prompt, *answer.token_ids, 1, 2]
    engine.submit(0, again, session="s")
    answer = engine.finish()[0]
    assert answer.reused_tokens == 0  # keys of the old weights are not carried into a new turn
    engine.check(again, answer)


def test_a_shared_prompt_is_not_shared_across_weights() -> None:
    engine = Harness("qwen3")
    prompt = prompts(1, 30, 30)[0]
    engine.submit(0, prompt)
    engine.finish()
    engine.swap(seed=9, version=1)
    engine.submit(1, prompt)
    answer = engine.finish()[1]
    assert answer.reused_tokens == 0
    engine.check(prompt, answer)


def test_a_full_queue_refuses_and_cancelled_or_late_jobs_free_their_slot() -> None:
    engine = Harness("qwen3", Limits(max_num_seqs=1, max_queue=2))
    jobs = [engine.submit(n, [1, 2, n], max_tokens=50) for n in range(2)]
    engine.runner.step()
    engine.submit(2, [4], max_tokens=1)
    engine.submit(3, [5])
    assert isinstance(engine.answers.pop(3), QueueFull)
    jobs[0].cancelled = True
    jobs[1].deadline = 0.0
    engine.runner.expire(time.monotonic())
    assert {n: a.code for n, a in engine.answers.items() if isinstance(a, ServerError)} == {
        0: "deadline",
        1: "deadline",
    }
    engine.answers.clear()
    assert engine.finish()[2].finish_reason == "length"


def test_what_was_sampled_by_the_deadline_is_the_answer_to_who_asked_for_that() -> None:
    engine = Harness("qwen3", Limits(max_num_seqs=2, max_queue=2))
    job, other = (engine.submit(n, [1, 2, n], max_tokens=50, partial=True) for n in range(2))
    while len(job.token_ids) < 3:
        engine.runner.step()
    job.deadline = 0.0
    engine.runner.expire(time.monotonic())
    answer = engine.answers.pop(0)
    assert isinstance(answer, GenerateResponse) and answer.finish_reason == "abort"
    assert answer.token_ids == job.token_ids and len(answer.logprobs) == len(answer.token_ids) >= 3
    assert [(span.start, span.end) for span in answer.spans] == [(0, len(answer.token_ids))]
    assert engine.finish()[1].finish_reason == "length" and len(other.token_ids) == 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2'"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"vocab_size": None}, "vocab_size"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_type"),
    ],
)
def test_models_that_it_cannot_run_are_refused_in_words(change: dict[str, object], message: str) -> None:
    config = models.make("qwen3").config.to_dict() | change
    with pytest.raises(UnsupportedModel, match=message):
        DecoderShape.from_config(config).rotary(8)


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_positions_that_depend_on_the_batch_are_refused_with_experts_too(kind: str, spelling: str) -> None:
    config = models.make("qwen3").config.to_dict() | {"rope_parameters": None, spelling: {"rope_type": kind}}
    with pytest.raises(UnsupportedModel, match=f"rope_type '{kind}'"):
        LibraryShape.from_config(config)


def test_weights_of_another_model_are_refused_in_words() -> None:
    shape = DecoderShape.from_config(models.make("qwen3").config.to_dict())
    state = dict(models.make("qwen3").state_dict())
    with pytest.raises(UnsupportedModel, match=r"does not know the tensor model\.layers\.7\.extra"):
        Weights.build(shape, state | {"model.layers.7.extra": torch.zeros(1)})
    del state["model.norm.weight"]
    with pytest.raises(UnsupportedModel, match=r"lack model\.norm\.weight"):
        Weights.build(shape, state)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("family", [*models.FAMILIES, "qwen3-moe", "deepseek-v3"])
def test_a_decoder_says_what_the_weights_say_and_one_that_does_not_is_told_apart(
    tmp_path: Path, family: str, compiled: bool
) -> None:
    model = models.make(family) if family in models.FAMILIES else moe.make(family)
    shape = read_shape(models.save(model, tmp_path))
    state = checkpoint_state(model, model.state_dict())
    decoder = build_decoder(shape, state, shape.max_position_embeddings, compiled=compiled)
    probe = measure_model(model, tokenizer=None, dtype="float32")
    gap = verify_weights(decoder, probe, deployment="x", version=3, max_context=2048)
    assert gap is not None and gap < 1e-4
    short = verify_weights(decoder, probe, deployment="x", version=3, max_context=20)  # the prompts that fit
    assert short is not None and short < 1e-4
    assert verify_weights(decoder, probe, deployment="x", version=3, max_context=4) is None
    for name in [name for name in state if name.endswith("down_proj.weight")]:  # of every expert: few see all text
        state[name] = state[name].roll(1, 0)
    packed_wrongly = build_decoder(shape, state, shape.max_position_embeddings, compiled=compiled)
    with pytest.raises(WeightMismatch, match="the embedded engine does not compute version 3 of 'x'"):
        verify_weights(packed_wrongly, probe, deployment="x", version=3, max_context=2048)
