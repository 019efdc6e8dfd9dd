"""Parts of an operator's own, added and changed while rollouts are scored."""

import os

import pytest

from tests.trainer.rollouts.make import trajectory
from trainer.config import RewardConfig
from trainer.rewards import RewardError, part_names, plugins, score
from trainer.rewards.parts import base

PART = """
from trainer.rewards import reward_part
from trainer.types import RewardPart

@reward_part("brief", version={version})
def brief(trajectory, config):
    return RewardPart(name="brief", value={value})
"""
WANTED = RewardConfig(extra="brief=0.5")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "REGISTRY", dict(base.REGISTRY))
    monkeypatch.setattr(plugins, "loaded_files", {})
    monkeypatch.setenv(plugins.FOLDER, str(tmp_path))
    return tmp_path


def write(folder, text, *, at):
    """With a modification time of its own: two writes within one tick look the same."""
    path = folder / "brief.py"
    path.write_text(text)
    os.utime(path, (at, at))


def found(config=WANTED):
    scored = score(trajectory(), config)
    return [(p.name, p.version, p.value, p.weight) for p in scored.reward_parts if p.name == "brief"], scored.reward


def test_a_part_joins_a_live_registry_and_the_reward_once_it_has_a_weight(folder):
    with pytest.raises(RewardError, match=r"no reward part 'brief'; there are:.*tests"):
        found()
    write(folder, PART.format(version=3, value=0.25), at=1000)
    assert found(RewardConfig()) == ([], 1.0)
    assert found() == ([("brief", 3, 0.25, 0.5)], 1.125)
    assert "brief" in part_names()


def test_a_changed_part_must_raise_its_version(folder):
    write(folder, PART.format(version=1, value=0.25), at=1000)
    found()
    write(folder, PART.format(version=1, value=0.75), at=2000)
    with pytest.raises(RewardError, match="'brief' still has version 1; raise the version"):
        found()
    write(folder, PART.format(version=2, value=0.75), at=3000)
    assert found()[0] == [("brief", 2, 0.75, 0.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_the_kind", "brief.py cannot be read.*nothing_of_the_kind"),
        (PART.format(version=1, value=0).replace('"brief"', '"tests"'), "two reward parts are named 'tests'"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_changes_nothing(folder, text, message):
    before = part_names()
    write(folder, text, at=1000)
    with pytest.raises(RewardError, match=message):
        found(RewardConfig())
    assert part_names() == before
    write(folder, PART.format(version=1, value=0.5), at=2000)
    assert found()[0] == [("brief", 1, 0.5, 0.5)]


def test_a_folder_that_is_not_there_is_named(folder, monkeypatch):
    monkeypatch.setenv(plugins.FOLDER, str(folder / "gone"))
    with pytest.raises(RewardError, match="is no folder"):
        found(RewardConfig())


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')"])
def test_a_part_that_gives_no_number_is_refused(folder, value):
    write(folder, PART.format(version=1, value=value), at=1000)
    with pytest.raises(RewardError, match=r"'brief' is (nan|inf)"):
        found()


@pytest.mark.parametrize(
    ("extra", "weights"),
    [("", {}), ("a=1", {"a": 1.0}), (" a = 0.5 , b-c=-2", {"a": 0.5, "b-c": -2.0})],
)
def test_weights_are_read(extra, weights):
    assert RewardConfig(extra=extra).extra_weights == weights


@pytest.mark.parametrize("extra", ["a", "a=", "=1", "a=1,,b=2", "a=x", "a=1.2.3", "a=1, a=2"])
def test_nonsense_weights_are_refused(extra):
    with pytest.raises(ValueError, match="extra"):
        RewardConfig(extra=extra)
