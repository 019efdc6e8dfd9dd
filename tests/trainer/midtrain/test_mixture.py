"""Corpora are mixed by weight, in tokens, whatever the length of their documents."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, repeat

import pytest
from pydantic import ValidationError

from trainer.config import MidtrainConfig
from trainer.learning.supervised import Example
from trainer.midtrain.mixture import mixed


def source(token: int, length: int) -> Iterator[Example]:
    return repeat(Example([token] * length, [1.0] * length))


def test_shares_are_of_tokens_and_hold_at_every_moment() -> None:
    drawn = list(islice(mixed([(source(1, 300), 3.0), (source(2, 7), 1.0)]), 2000))
    for upto in (200, 2000):
        tokens = [example.ids[0] for example in drawn[:upto] for _ in example.ids]
        assert tokens.count(1) / len(tokens) == pytest.approx(0.75, abs=0.06)


def test_the_mixture_is_read_and_refused_in_words() -> None:
    assert MidtrainConfig(corpus_mixture="code=3, docs-1.2=0.5").corpora == {"code": 3.0, "docs-1.2": 0.5}
    assert MidtrainConfig(corpus="code").corpora == {"code": 1.0} and MidtrainConfig().corpora == {}
    for given, words in (
        ({"corpus": "a", "corpus_mixture": "b=1"}, "both given"),
        ({"corpus_mixture": "a=1, a=2"}, "twice"),
        ({"corpus_mixture": "a=0"}, "above 0"),
    ):
        with pytest.raises(ValidationError, match=words):
            MidtrainConfig(**given)
