import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.learning.packing import check_sample, pack
from trainer.types import TrainSample


@st.composite
def samples(draw):
    length = draw(st.integers(1, 40))
    mask = [0, *draw(st.lists(st.integers(0, 1), min_size=length - 1, max_size=length - 1))]
    tokens = draw(st.lists(st.integers(1, 99), min_size=length, max_size=length))
    return TrainSample(
        tokens=tokens, loss_mask=mask, sampler_logprobs=[-0.1 * t for t in tokens], advantages=[float(m) for m in mask]
    )


@given(st.lists(samples(), max_size=12), st.integers(1, 120))
def test_every_policy_token_appears_once_with_its_own_numbers(rows, budget):
    batches = pack(rows, max_tokens=budget)
    seen = []
    for batch in batches:
        b, t = batch.tokens_BT.shape
        assert b == 1 or b * t <= budget
        flat = batch.tokens_BT.flatten()
        for position, target, logp in zip(
            batch.predict_from_N.tolist(), batch.targets_N.tolist(), batch.sampler_logprobs_N.tolist(), strict=True
        ):
            assert (position + 1) % t != 0
            assert int(flat[position + 1]) == target
            seen.append((target, round(logp, 4)))
    wanted = [(x.tokens[t], round(-0.1 * x.tokens[t], 4)) for x in rows for t, m in enumerate(x.loss_mask) if m]
    assert sorted(seen) == sorted(wanted)
    assert sum(batch.tokens for batch in batches) == sum(len(row.tokens) for row in rows)


def test_order_depends_on_nothing_but_the_samples():
    rows = [
        TrainSample(tokens=[1] * n, loss_mask=[0] * n, sampler_logprobs=[0.0] * n, advantages=[0.0] * n)
        for n in (5, 3, 5, 2)
    ]
    first, second = pack(rows, max_tokens=8), pack(rows, max_tokens=8)
    assert [b.tokens_BT.tolist() for b in first] == [b.tokens_BT.tolist() for b in second]
    assert [len(b.tokens_BT) for b in first] == [2, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_mask": [0, 1]}, "loss_mask"),
        ({"sampler_logprobs": []}, "sampler_logprobs"),
        ({"loss_mask": [1, 0, 0]}, "first token"),
        ({"tokens": [1, 2, 100]}, "vocabulary"),
        ({"tokens": [], "loss_mask": [], "sampler_logprobs": [], "advantages": []}, "empty"),
    ],
)
def test_a_broken_sample_is_named(change, message):
    good = {"tokens": [1, 2, 3], "loss_mask": [0, 0, 1], "sampler_logprobs": [0.0] * 3, "advantages": [0.0] * 3}
    check_sample(TrainSample(**good), vocabulary=100)
    with pytest.raises(ValueError, match=message):
        check_sample(TrainSample(**(good | change)), vocabulary=100)
