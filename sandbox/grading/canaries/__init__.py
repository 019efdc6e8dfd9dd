"""Canaries: tests derived from a task's own hidden tests, with an expectation that no honest work can meet.

`base` says what a language must offer, `python`, `go`, `javascript` and `rust` do it, `planting` places canaries among the hidden
tests. Work that passes one was not tested; it was paid for something else.
"""

from sandbox.grading.canaries.base import Block, Language, Twin
from sandbox.grading.canaries.planting import Planted, plant

__all__ = ["Block", "Language", "Planted", "Twin", "plant"]
