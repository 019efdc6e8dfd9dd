"""The paged KV cache: beginnings are stored once, memory goes to the oldest requests, and no answer depends on either."""

from __future__ import annotations

import random

import pytest

from tests.trainer.inference.test_engine import BLOCK_BYTES, Harness, prompts
from trainer.inference.contract import LengthLimit
from trainer.inference.embedded.runner import Limits


def test_prompts_with_a_common_beginning_share_its_blocks() -> None:
    """Different tasks, one system prompt: computed once, whichever request comes first, and read by all."""
    engine = Harness("qwen3", Limits(max_num_seqs=12))
    system = prompts(1, 53, 53)[0]
    asked = [[*system, *tail] for tail in prompts(6, 5, 30, seed=8)]
    for number, prompt in enumerate(asked):
        engine.submit(number, prompt)
    answers = engine.finish()
    # Three full blocks are shared; what lies behind them is copied where it was there in time.
    assert sum(answer.reused_tokens == 0 for answer in answers.values()) == 1
    assert all(answer.reused_tokens in {0, *range(48, 54)} for answer in answers.values())
    scheduler = engine.runner.scheduler
    assert scheduler is not None and scheduler.pool.free == scheduler.cache.blocks
    for number, prompt in enumerate(asked):
        engine.check(prompt, answers[number])


def test_samples_that_part_inside_a_block_keep_their_own_copies() -> None:
    engine = Harness("qwen3", Limits(max_num_seqs=8))
    prompt = prompts(1, 37, 37)[0]  # two full blocks, five tokens of a third
    for number in range(8):
        engine.submit(number, prompt, max_tokens=30)
    answers = engine.finish()
    assert len({tuple(answer.token_ids) for answer in answers.values()}) == 8
    for answer in answers.values():
        engine.check(prompt, answer)
    longer = {number: [*prompt, *answer.token_ids, 3] for number, answer in answers.items()}
    for number, text in longer.items():
        engine.submit(number, text)
    for number, answer in engine.finish().items():
        assert answer.reused_tokens == len(longer[number]) - 2  # all that its own answer had computed
        engine.check(longer[number], answer)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_preempted_request_goes_on_as_if_nothing_had_happened(compiled: bool) -> None:
    asked = prompts(5, 20, 40, seed=2)
    alone = []
    for number, prompt in enumerate(asked):
        engine = Harness("qwen3", compiled=compiled)
        engine.submit(number, prompt, max_tokens=60)
        alone.append(engine.finish()[number])
    engine = Harness("qwen3", Limits(max_num_seqs=5, kv_bytes=16 * BLOCK_BYTES), compiled=compiled)
    for number, prompt in enumerate(asked):
        engine.submit(number, prompt, max_tokens=60)
    answers = engine.finish()
    assert engine.runner.preemptions > 0
    for number, prompt in enumerate(asked):
        assert answers[number].token_ids == alone[number].token_ids
        assert len(answers[number].spans) == 1
        engine.check(prompt, answers[number])


def test_a_cache_for_one_sequence_serves_many() -> None:
    engine = Harness("qwen3", Limits(max_num_seqs=4, max_context=64, kv_bytes=4 * BLOCK_BYTES))
    asked = prompts(6, 30, 50, seed=5)
    for number, prompt in enumerate(asked):
        engine.submit(number, prompt, max_tokens=200)
    for number, answer in engine.finish().items():
        assert len(asked[number]) + len(answer.token_ids) == 64
        assert answer.length_limit is LengthLimit.ENGINE_CONTEXT
        engine.check(asked[number], answer)


def test_what_ended_a_response_is_said() -> None:
    engine = Harness("qwen3")
    engine.submit(0, [1, 2, 3], max_tokens=4)
    engine.submit(1, prompts(1, 250, 250)[0], max_tokens=7)
    answers = engine.finish()
    assert answers[0].length_limit is LengthLimit.MAX_TOKENS
    assert answers[1].length_limit is LengthLimit.ENGINE_CONTEXT


def test_new_weights_in_the_middle_of_a_prefill_leave_nothing_behind_that_others_find() -> None:
    engine = Harness("qwen3", Limits(prefill_tokens=32))
    prompt = prompts(1, 100, 100)[0]
    engine.submit(0, prompt)
    engine.runner.step()
    engine.swap(seed=4, version=1)
    engine.submit(1, prompt)
    answers = engine.finish()
    assert answers[1].reused_tokens == 0, "half of the other's keys are of the old weights"
    engine.check(prompt, answers[1])
    engine.submit(2, prompt)
    answer = engine.finish()[2]
    assert answer.reused_tokens == 99
    engine.check(prompt, answer)


def test_64_sessions_compute_their_tokens_once() -> None:
    engine = Harness("qwen3", Limits(max_num_seqs=64))
    system, draw = prompts(1, 60, 60)[0], random.Random(1)
    texts = {number: [*system, *tail] for number, tail in enumerate(prompts(64, 5, 9, seed=6))}
    read = reused = 0
    for turn in range(4):
        for number, text in texts.items():
            engine.submit(number, text, session=f"s{number}", max_tokens=5)
        for number, answer in engine.finish().items():
            if turn:
                assert answer.reused_tokens == len(texts[number]) - 1 - 4, "all but the last token and the observation"
                read, reused = read + len(texts[number]), reused + answer.reused_tokens
            texts[number] = [*texts[number], *answer.token_ids, *(draw.randrange(97) for _ in range(4))]
    assert reused / read > 0.9
