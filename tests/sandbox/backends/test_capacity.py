"""How many sandboxes a process keeps alive follows the machine, or the setting."""

from __future__ import annotations

import pytest

from sandbox.backends.base import SandboxUnavailable
from sandbox.backends.capacity import SETTING, sandboxes_at_once

GIB = 1 << 30


def test_it_follows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    found = [sandboxes_at_once(*machine) for machine in ((2, 24 * GIB), (64, 256 * GIB), (64, 8 * GIB), (1, GIB // 2))]
    assert found == [32, 1024, 32, 4]
    assert sandboxes_at_once() >= 4


def test_the_setting_wins_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "7")
    assert sandboxes_at_once(2, 24 * GIB) == 7
    for wrong in ("0", "-3", "many", "1.5"):
        monkeypatch.setenv(SETTING, wrong)
        with pytest.raises(SandboxUnavailable, match=f"{SETTING} is '{wrong}': give the most sandboxes"):
            sandboxes_at_once()
