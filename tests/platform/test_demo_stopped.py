"""A demo that is to end with its run (`DEMO_EXIT=1`) and is stopped before says so to whoever waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.stack import __main__ as stack
from scripts.stack import foreground
from scripts.stack.layout import Layout


@pytest.mark.parametrize(("leave", "code"), [(True, 1), (False, 0)])
def test_a_demo_that_is_stopped(
    leave: bool, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise foreground.Stop

    monkeypatch.setattr(foreground, "obey_signals", lambda: None)
    monkeypatch.setattr(stack, "bring_up", stopped)
    assert stack.demo(Layout.open(tmp_path / "d"), new=False, leave=leave) == code
    said = capfd.readouterr()
    assert ("before the run had ended" in said.out + said.err) == leave
