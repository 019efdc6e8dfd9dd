"""The selection suite: likelihoods are exact, questions have right answers, and a trained policy beats a random one."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.stages.memory import BASE_POLICY
from trainer import policy as policies
from trainer.midtrain.corpus.documents import Document
from trainer.model_selection.codebase import Recent, read_codebase
from trainer.model_selection.selection import codebase_text, distance, rolling_nll, select
from trainer.toy.model import build_tiny_model


@pytest.fixture(scope="module")
def policy() -> policies.Policy:
    return policies.load(BASE_POLICY)


def test_every_token_is_scored_once(policy) -> None:
    text = "def total(values):\n    return sum(values)\n" * 12
    ids = policy.tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logps = torch.log_softmax(policy.model(torch.tensor([ids])).logits[0].float(), -1)
    whole = -sum(float(logps[t - 1, ids[t]]) for t in range(1, len(ids)))
    nll, tokens = rolling_nll(policy, text, window=1024)
    assert (nll, tokens) == (pytest.approx(whole, rel=1e-4), len(ids) - 1)
    assert rolling_nll(policy, text, window=32, stride=16)[1] == len(ids) - 1
    with pytest.raises(ValueError, match="no text"):
        rolling_nll(policy, "")


def test_files_are_read_in_alphabetical_order() -> None:
    made = [Document(text=name, path=name, source="s", language="python") for name in ("b.py", "a.py")]
    assert codebase_text(made) == "# a.py\na.py\n# b.py\nb.py\n"


@pytest.mark.parametrize(("a", "b", "expected"), [("", "abc", 3), ("kitten", "sitting", 3), ("x", "x", 0)])
def test_distances(a, b, expected) -> None:
    assert distance(a, b) == expected


def test_a_trained_policy_is_chosen(tmp_path, policy) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text(
        "def total(values):\n    out = 0\n    for x in values:\n        out += x\n    return out\n"
    )
    random = policies.Policy(build_tiny_model(policy.tokenizer, 0), policy.tokenizer, policy.renderer, tmp_path)
    untrained = policies.save(random, tmp_path / "random")
    codebase = read_codebase(tmp_path / "code", Recent(), max_bytes=10_000)
    scores = [select(folder, codebase, items=2, changes=1) for folder in (BASE_POLICY, untrained)]
    assert scores[0].codebase_nll < scores[1].codebase_nll
    assert scores[0].codebase_tokens == scores[1].codebase_tokens
    assert scores[0].recent_bits_per_byte is None and scores[0].before == ""
    assert [score.state_source for score in scores] == ["codebase", "codebase"]
    assert select(BASE_POLICY, codebase, items=1, changes=1, questions="generated").state_source == "generated"
