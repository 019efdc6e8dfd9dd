"""Can an agent tell training from a user's machine? A probe, a recorded machine to compare with, and a classifier.

observe.py   probe.sh and what its output says, as facets without names
judge.py     facets against the recorded machine: a score, the tells, and what mends each
early.py     a classifier over the answers of the first turns: AUC 0.5 is chance
measure.py   all of it over a backend's sandboxes
record.py    a machine's own recordings → reference/*.json
machine.sh   how the shipped reference machine was made and recorded
"""

from sandbox.fidelity.judge import Profile, Tell, Verdict, judge, reference
from sandbox.fidelity.measure import CHECKOUTS, Apart, Result, Turns, checkouts, measure, recorded_turns
from sandbox.fidelity.observe import facets, script

__all__ = [
    "CHECKOUTS",
    "Apart",
    "Profile",
    "Result",
    "Tell",
    "Turns",
    "Verdict",
    "checkouts",
    "facets",
    "judge",
    "measure",
    "recorded_turns",
    "reference",
    "script",
]
