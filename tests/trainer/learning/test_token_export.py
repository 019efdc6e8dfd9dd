"""Per-token numbers of a step find their tokens again, whatever order the samples were trained in."""

import pytest

from tests.trainer.learning.models import tiny_model
from tests.trainer.learning.test_step import group, learner, logprobs_of
from trainer.learning.token_export import TokenStreams, digest_of, packed


def test_streams_belong_to_their_samples():
    model = tiny_model()
    groups = [group(model, [1.0, 0.0, 0.0]), group(model, [0.5, 0.5], seed=1)]
    expected = [[logprobs_of(model, sample.tokens)[2:] for sample in one.samples] for one in groups]
    made = learner(model, micro_batch_tokens=20)
    made.train(groups, step=1)
    first, flat = made.streams(groups, step=1)
    assert (first.prompt_index, first.step, flat.prompt_index) == (0, 1, 1)
    for sample, logprobs, kept in zip(groups[0].samples, expected[0], first.samples, strict=True):
        assert kept.digest == digest_of(sample.tokens, sample.sampler_logprobs)
        assert first.of(kept.digest) == kept
        assert kept.array("trainer_logprobs").tolist() == pytest.approx(logprobs, abs=1e-5)
        assert kept.array("advantages").tolist() == pytest.approx(sample.advantages[2:])
        assert (kept.array("entropy") > 0).all()
        assert kept.array("weights").tolist() == pytest.approx([1.0] * kept.tokens, abs=1e-4)
    for sample, kept in zip(groups[1].samples, flat.samples, strict=True):  # equal rewards: not scored
        assert kept.array("advantages").tolist() == [0.0] * sum(sample.loss_mask)
        assert kept.array("trainer_logprobs") is None


def test_a_penalty_for_leaving_the_reference_is_in_the_advantage():
    model = tiny_model()
    one = group(model, [1.0, 0.0])
    made = learner(model, reference=tiny_model(seed=5), kl_coefficient=0.5)
    made.train([one], step=1)
    (kept,) = made.streams([one], step=1)
    assert kept.samples[0].array("advantages").tolist() != pytest.approx(one.samples[0].advantages[2:])


def test_damaged_streams_are_refused():
    streams = TokenStreams(digest="", tokens=3, advantages=packed([1.0, 2.0]))
    with pytest.raises(ValueError, match="advantages has 2 numbers for 3 tokens"):
        streams.array("advantages")
