"""What can go wrong when the stack starts or stops, each with its remedy."""

from __future__ import annotations


class StackError(Exception):
    """The stack cannot start or stop. The message says what was found and what to do; no trace is shown."""


class NotAnswering(StackError):
    """A program did not answer before its deadline."""

    def __init__(self, what: str, seconds: float, log: object) -> None:
        super().__init__(f"{what} did not answer within {seconds:g} s; its log is {log}")


class Busy(StackError):
    """Another command starts or stops this stack."""

    def __init__(self, data: object) -> None:
        super().__init__(f"another command is starting or stopping the stack in {data}; wait for it")
