"""The expert of an SFT run is as good as its configuration says."""

from __future__ import annotations

import pytest

from composer_web.runs.training import stages
from sandbox.backends import choice
from tests.sandbox.tasks.test_procedural import episodes
from trainer.config import SFTConfig
from trainer.sft import recording
from trainer.sft.expert_episodes import ExpertEpisode


class NoBackend:
    async def close(self) -> None:
        """Nothing was started."""


def recorded(config: SFTConfig, monkeypatch: pytest.MonkeyPatch) -> recording.Recording:
    """What the stage asks to be recorded."""
    asked: list[recording.Recording] = []

    async def record(wanted: recording.Recording, **more: object) -> list[ExpertEpisode]:
        asked.append(wanted)
        return []

    monkeypatch.setattr(recording, "expert_episodes", record)
    monkeypatch.setattr(choice, "default_backend", NoBackend)
    assert stages._episodes(config, seed=3) == []
    return asked[0]


def test_the_measured_accuracy_of_demonstrations_follows_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []
    for accuracy in (0.04, 0.5, 1.0):
        wanted = recorded(SFTConfig(episodes=40, expert_accuracy=accuracy), monkeypatch)
        assert (wanted.count, wanted.seed, wanted.habits.right) == (40, 3, accuracy)
        sessions = episodes(wanted.habits, 60)
        solved.append(sum(session.solved for session in sessions) / len(sessions))
    few, half, all_of_them = solved
    assert few + 0.15 < half < all_of_them and all_of_them > 0.9
