"""Canaries: tests derived from a task's own hidden tests, with an expectation that no honest work can meet.

`base` says what a language must offer; `python`, `go`, `javascript` and `rust` do it; `insertion` places canaries among
the hidden tests. Work that passes one was not tested; it was paid for something else.
"""

from sandbox.grading.canaries.base import Block, Language, SiblingTest
from sandbox.grading.canaries.insertion import PreparedSuite, insert_canaries

__all__ = ["Block", "Language", "PreparedSuite", "SiblingTest", "insert_canaries"]
