"""Both published failures of real-time RL happen in the simulator, and their fixes work."""

from __future__ import annotations

import pytest

from tests.support.session_simulator import SCENARIOS, Outcome, simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(name: str) -> Outcome:
    return simulate(SCENARIOS[name], cycles=20)


def test_broken_calls_that_are_lost_are_learned_and_as_negatives_they_vanish() -> None:
    hack, fixed = run("broken-hack"), run("broken-fixed")
    assert hack.on_hard is not None and hack.on_hard.malformed > 0.8 and hack.on_hard.edit < 0.1
    assert hack.stopped is not None and any("malformed tool call rose" in why for why in hack.why)
    assert fixed.on_hard is not None and fixed.on_hard.malformed < 0.02 and fixed.on_hard.edit > 0.9
    assert fixed.stopped is None


def test_a_reward_of_edits_alone_teaches_to_ask_and_the_guard_stops_it() -> None:
    hack, fixed = run("questions-hack"), run("questions-fixed")
    assert hack.on_hard is not None and hack.on_hard.question > 0.8 and hack.on_hard.edit < 0.1
    assert hack.stopped is not None and hack.stopped < 10
    assert any("only ask rose" in why or "that edit fell" in why for why in hack.why)
    assert hack.rates[hack.stopped].edit > 0.4, "the guard saw it while most of the harm was still to come"
    assert fixed.on_hard is not None and fixed.on_hard.question < 0.02 and fixed.on_hard.edit > 0.9
    assert fixed.stopped is None
