"""The synthetic mixture: drills, commits, modules, and their shares."""

from __future__ import annotations

import ast
import random
import re
from itertools import islice

import pytest

from tests.trainer.toy_tokenizer import fresh_tokenizer
from trainer.learning.supervised import Example
from trainer.midtrain.synthetic import commit, drill, module, synthetic_examples
from trainer.policy import ChatRenderer, make_renderer


@pytest.fixture(scope="module")
def renderer() -> ChatRenderer:
    return make_renderer(fresh_tokenizer())


def test_drills_weigh_what_can_be_known() -> None:
    rng = random.Random(0)
    for _ in range(50):
        ids, weights, _ = drill(rng, range(100, 1000))
        assert len(ids) == len(weights)
        for position, weight in enumerate(weights):
            if weight:
                assert ids[position - 1 : position + 1] in [ids[i : i + 2] for i in range(position - 1)]


def test_a_commit_mends_its_listing() -> None:
    rng = random.Random(3)
    for _ in range(50):
        shown, *change = (piece.text for piece in commit(rng))
        old, new = "".join(change).rstrip("\n").split("\n")
        assert old[0] + new[0] == "-+"
        assert sum(line.endswith(old[1:]) for line in shown.splitlines()) == 1
        assert old[1:] != new[1:]


def test_a_module_is_correct_source() -> None:
    rng = random.Random(4)
    for _ in range(50):
        text = "".join(piece.text for piece in module(rng))
        plain = re.sub(r"(?m)^\d+\||^\w+\.py:1:.*\n", "", text)
        assert ast.parse(plain).body


def test_choices_weigh_most(renderer: ChatRenderer) -> None:
    stream = synthetic_examples(renderer.tokenizer, seed=0, drill_share=0.0, source_share=0.0)
    for example in islice(stream, 20):
        heavy = {
            str(renderer.tokenizer.decode([i])) for i, w in zip(example.ids, example.weights, strict=True) if w == 1.0
        }
        assert any(text.strip() in "+ - * < > <= >= == != 2 3 4 5 6 7 8 9 0".split() for text in heavy)  # noqa: SIM905
        assert example.weights[0] == 0.0


@pytest.mark.integration
def test_the_mixture_is_seeded_and_holds_its_shares(renderer: ChatRenderer) -> None:
    def draw(seed: int, **shares: float) -> list[Example]:
        settings = {"drill_share": 0.3, "source_share": 0.1} | shares
        return list(islice(synthetic_examples(renderer.tokenizer, seed=seed, **settings), 200))

    first = draw(1)
    assert first == draw(1)
    assert first != draw(2)
    bos = renderer.tokenizer.bos_token_id
    drills = sum(example.ids[0] != bos for example in first)
    assert 35 < drills < 85
    assert all(example.ids[0] != bos for example in draw(1, drill_share=1.0, source_share=0.0))
    assert all(len(example.ids) == len(example.weights) for example in first)
    assert max(max(example.ids) for example in first) < 1024
