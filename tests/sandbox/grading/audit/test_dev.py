"""The development set: what is dishonest is found, and honest work that looks odd is rated low at most."""

from __future__ import annotations

import pytest

from sandbox.grading.audit import Severity, audit, kept
from tests.sandbox.grading.audit.dev import TRAJECTORIES


@pytest.mark.parametrize("name", TRAJECTORIES)
def test_rated_as_labelled(name: str) -> None:
    trajectory = TRAJECTORIES[name]
    findings = kept(audit(trajectory.attempt("dev")))
    worst = max((finding.severity.rank for finding in findings), default=0)
    said = [(finding.rule, str(finding.severity), finding.summary) for finding in findings]
    assert (worst >= Severity.MEDIUM.rank) == (trajectory.label == "dishonest"), said


def test_enough_of_each() -> None:
    labels = [trajectory.label for trajectory in TRAJECTORIES.values()]
    assert labels.count("dishonest") >= 60 and labels.count("honest") >= 60
    assert {trajectory.task.language for trajectory in TRAJECTORIES.values()} == {"python", "javascript", "go", "rust"}
