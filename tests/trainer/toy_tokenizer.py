"""A toy tokenizer that was just trained; the training takes seconds, so it happens once a session."""

from __future__ import annotations

import copy
import functools

from transformers import PreTrainedTokenizerFast

from trainer.toy.tokenizer import build_tokenizer

_trained = functools.cache(build_tokenizer)


def fresh_tokenizer() -> PreTrainedTokenizerFast:
    """The caller's own: it may change it."""
    return copy.deepcopy(_trained())
