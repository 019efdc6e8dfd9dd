"""The classifier of first turns: what it must tell apart, and what it must not."""

from __future__ import annotations

import random

import pytest

from sandbox.fidelity.early import anonymous, auc, cross_validated, features
from sandbox.fidelity.measure import Turns, classify, recorded_turns


def test_names_and_numbers_are_taken_out() -> None:
    names = {"/home/dev/repo": "CHECKOUT", "/home/dev": "HOME", "dev": "USER", "Robin Marsh": "PERSON"}
    text = "dev@box:/home/dev/repo/a.py /home/dev/x USER=dev tmpfs on /dev/shm dev-tools device 123 Robin Marsh, id=1000(dev)"
    assert anonymous(text, names) == (
        "USER@box:CHECKOUT/a.py HOME/x USER=USER tmpfs on /dev/shm dev-tools device 0 PERSON, id=0(USER)"
    )
    assert anonymous("a1b22", {}) == "a0b0"


def test_auc_is_the_chance_that_a_positive_scores_higher() -> None:
    assert auc([(0.9, True), (0.1, False)]) == 1.0
    assert auc([(0.1, True), (0.9, False)]) == 0.0
    assert auc([(0.5, True), (0.5, False)]) == 0.5
    assert auc([(0.7, True), (0.3, True), (0.5, False)]) == 0.5
    with pytest.raises(ValueError, match="both kinds"):
        auc([(0.5, True)])


def samples(sandboxed: str, real: str) -> dict:
    draw = random.Random(4)
    found = {}
    for number in range(12):
        shared = " ".join(f"file{draw.randrange(10**6)}" for _ in range(4))
        found[f"p{number}"] = [
            (features({"ls": f"{shared} {real}"}), False),
            (features({"ls": f"{shared} {sandboxed}"}), True),
        ]
    return found


def test_a_mark_of_the_sandbox_is_found_in_checkouts_never_seen() -> None:
    assert cross_validated(samples("marker", "")) == 1.0
    assert cross_validated(samples("", "lost+found")) == 1.0


def test_equal_answers_are_chance() -> None:
    assert cross_validated(samples("same", "same")) == 0.5


def test_one_checkout_cannot_be_cross_validated() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        cross_validated({"a": samples("x", "y")["p0"]})


def test_each_command_is_judged_alone() -> None:
    real = {f"p{n}": {"early": {"pwd": "CHECKOUT", "which python0": "/usr/bin", "only here": "x"}} for n in range(4)}
    fake = {f"p{n}": {"early": {"pwd": "CHECKOUT", "which python0": "/opt/bin"}} for n in range(5)}
    found = classify(real, fake, "early")
    assert found.commands == {"pwd": 0.5, "which python0": 1.0}
    assert found.auc == found.auc_without_home == 1.0 and found.at_chance() == 1
    assert any("opt" in feature and weight > 0 for feature, weight in found.giveaways)
    with pytest.raises(ValueError, match="at least 2"):
        classify({"p0": real["p0"]}, fake, "early")


def test_the_names_in_a_home_are_told_apart_alone() -> None:
    real = {f"p{n}": {"early": {"pwd": "CHECKOUT", "ls -la ~": ".bashrc src"}} for n in range(4)}
    fake = {f"p{n}": {"early": {"pwd": "CHECKOUT", "ls -la ~": ".bashrc notes"}} for n in range(4)}
    found = classify(real, fake, "early")
    assert (found.auc, found.auc_without_home) == (1.0, 0.5)


def test_the_recorded_turns_hold_no_name_and_no_number() -> None:
    turns = recorded_turns()
    assert isinstance(turns, Turns) and len(turns.checkouts) >= 2
    for kinds in turns.checkouts.values():
        text = "\n".join(answer for answers in kinds.values() for answer in answers.values())
        assert "User Name" not in text and "/home/user" not in text and "workstation" not in text
        assert not set("123456789") & set(text)
