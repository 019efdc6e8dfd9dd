"""A policy's folder as a version of a store, with the probe that engines are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.trainer.inference import models
from tests.trainer.router_replay import moe
from trainer.policy import PolicyUnreadable
from trainer.policy.names import load_checkpoint_state
from trainer.weights import Subscriber, open_versions
from trainer.weights.probe import published_probe
from trainer.weights.publish_checkpoint import VersionTaken, publish_checkpoint


@pytest.mark.parametrize("family", ["qwen3", "qwen3-moe"])
def test_what_is_handed_over_is_the_policy_and_says_what_it_says(tmp_path: Path, family: str) -> None:
    model = models.make(family) if family in models.FAMILIES else moe.make(family)
    folder, where = models.save(model, tmp_path / "policy"), str(tmp_path / "store")
    made = publish_checkpoint(folder, where, dtype="float32")
    assert (made.version, made.kind) == (0, "anchor")
    again = publish_checkpoint(folder, where, version=7, dtype="float32")
    assert (again.version, again.digest) == (7, made.digest)
    fetched = Subscriber(open_versions(where)).fetch()
    assert fetched is not None and fetched.mirror.version == 7
    served = AutoModelForCausalLM.from_config(model.config)
    load_checkpoint_state(served, fetched.mirror.state())
    assert all(torch.equal(t, model.state_dict()[name]) for name, t in served.state_dict().items())
    probe = published_probe(open_versions(where), 7)
    assert probe is not None
    for row in probe.rows:
        said = models.logprobs(model, row.prompt_ids, row.ids[:1])
        assert row.logprobs[0] == pytest.approx(float(said[0]), abs=1e-4)


def test_versions_that_engines_may_follow_are_not_retracted(tmp_path: Path) -> None:
    folder, where = models.save(models.make("qwen3"), tmp_path / "policy"), str(tmp_path / "store")
    publish_checkpoint(folder, where, version=3)
    for number in (0, 3):
        with pytest.raises(VersionTaken, match=f"version {number} .* newest is 3.* give 4 or more"):
            publish_checkpoint(folder, where, version=number)
    with pytest.raises(PolicyUnreadable):
        publish_checkpoint(tmp_path / "nothing", where)
    assert open_versions(where).all() == [3]
