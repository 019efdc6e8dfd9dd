"""The light verifier: hidden calls of one function.

A small program in the clean sandbox makes the calls in a process of their own and returns each result as plain data on
the private descriptor. The expected values stay outside, so there is nothing inside that could be forged or read: a
program that writes the right results by any means has solved the task. The work gets one case at a time, in a drawn
order, and some of them again in another process and order: work that then answers something else has failed.
"""

from __future__ import annotations

import ast
import asyncio
import marshal
import math
import random
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandbox.backends.base import EndReason, ExecResult, Sandbox
from sandbox.grading.adapters.base import CPU_EXIT_CODES, wall_for
from sandbox.grading.verdict.findings import Rule, finding
from sandbox.grading.verdict.outcomes import Cause
from sandbox.grading.verdict.report import CaseResult
from sandbox.grading.verifiers.judging import Judgement, judge_cases
from sandbox.tasks.spec import CallsVerifier

START_SECONDS = 2.0
"""What the interpreter may take besides the limit of the calls."""
RUNNER = (Path(__file__).parents[1] / "runners" / "calls.py").read_text(encoding="utf-8")
MESSAGE_CHARS = 500
MAX_ANSWERS = 100_000
"""Answers of one run that are read."""
RESULT_CHARS = 100_000
"""Longest `repr` that is compared; longer ones fail."""
AGAIN = 6
"""Cases that are asked a second time, in another process."""
AGAIN_SHARE = 0.2
"""Share of gradings in which that is done, drawn: it costs a process, and work cannot know which."""
MAX_DEPTH = 60
"""Deepest nesting of a result whose sets may come in another order."""
TOKEN = re.compile(
    r"""\s*(?:(?P<value>b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|-?\d[\d.]*(?:e[+-]?\d+)?j?|True|False|None|set\(\))"""
    r"""|(?P<open>[\[({])|(?P<close>[\])}])|(?P<mark>[,:]))\s*""",
    re.DOTALL,
)
"""A piece of the `repr` of plain data."""
SECRET: random.Random = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call gave: the `repr` of its value, or an error."""

    text: str = ""
    plain: bool = False
    """Whether the value is plain data of the built-in types throughout."""
    error: str | None = None


Answers = Mapping[tuple[int, int], Answer]
"""(pass, case) → answer."""


async def run_calls(sandbox: Sandbox, verifier: CallsVerifier, *, draw: random.Random = SECRET) -> Judgement:
    """Make the hidden calls in `sandbox`, whose checkout holds the work. Raises SandboxError."""
    seconds = max(1, math.ceil(verifier.timeout_seconds))
    arguments = [case[0] for case in verifier.cases]
    orders = drawn_orders(len(arguments), draw)
    # Version 2: every Python that a sandbox may have reads it.
    request = marshal.dumps((verifier.module, verifier.function, orders, arguments, RESULT_CHARS), 2)
    # Time counts whether the code computes or sleeps, in all passes together; only waiting for a processor of a busy machine
    # is added to it.
    command = f"ulimit -t {seconds}; exec python3 -I -S -B -X utf8 -c {shlex.quote(RUNNER)} {len(orders)}"
    outcome = await sandbox.exec(
        command,
        stdin=request,
        timeout=seconds + START_SECONDS,
        longest=wall_for(seconds),
        private_result=True,
        keep_state=False,
    )
    return await asyncio.to_thread(judge, verifier.cases, outcome, orders)


def drawn_orders(count: int, draw: random.Random) -> tuple[list[int], ...]:
    """Every case in a drawn order, and in some gradings a few of them in another."""
    first = draw.sample(range(count), count)
    return (first, draw.sample(range(count), min(AGAIN, count))) if draw.random() < AGAIN_SHARE else (first,)


def judge(cases: Sequence[tuple[str, str]], outcome: ExecResult, orders: Sequence[Sequence[int]] = ()) -> Judgement:
    """A result for each case from what came back, and one cause."""
    starved = outcome.ended is EndReason.MEMORY
    answers = parse_records(outcome.result)
    judged = judge_cases(compare(cases, outcome, orders[0] if orders else ()), out_of_memory=starved)
    if judged.outcome is Cause.ALL_PASSED and len(orders) > 1:
        other = [index for index in orders[1] if not _same(answers[0, index], answers.get((1, index)))]
        if other and ran_out_of_time(outcome):
            return replace(judged, outcome=Cause.TIME_OUT, cause="calls in another order did not end in time")
        if other:
            cause = f"{len(other)} calls give another result in another order"
            noticed = finding(Rule.ADAPTIVE, ", ".join(f"case-{index:03d}" for index in other))
            return replace(judged, outcome=Cause.ADAPTIVE, cause=cause, findings=(noticed,))
    if any(case.status == "missing" for case in judged.cases) and not (starved or ran_out_of_time(outcome)):
        return replace(judged, findings=(finding(Rule.RUN_CUT_SHORT, _end_of(outcome)),))
    return judged


def compare(cases: Sequence[tuple[str, str]], outcome: ExecResult, order: Sequence[int] = ()) -> tuple[CaseResult, ...]:
    """Compare what came back with what is expected, case by case; `order` is that in which they were asked."""
    answers = parse_records(outcome.result)
    results: list[CaseResult] = []
    for index, (_, expected) in enumerate(cases):
        case_id = f"case-{index:03d}"
        answer = answers.get((0, index))
        if answer is None:
            results.append(CaseResult(id=case_id, status="missing", message=_end_of(outcome)))
        elif answer.error is not None:
            results.append(CaseResult(id=case_id, status="error", message=answer.error[:MESSAGE_CHARS]))
        elif is_right(answer, expected):
            results.append(CaseResult(id=case_id, status="passed"))
        else:
            message = f"got {answer.text[:200]}, expected {expected[:200]}"
            results.append(CaseResult(id=case_id, status="failed", message=message))
    asked = order or range(len(cases))
    first_missing = next((index for index in asked if results[index].status == "missing"), None)
    if first_missing is not None and ran_out_of_time(outcome):
        late = results[first_missing]
        results[first_missing] = late.model_copy(update={"status": "timeout", "message": "did not end in time"})
    return tuple(results)


def is_right(answer: Answer, expected: str) -> bool:
    """Whether an answer is the expected value: equal, and of the same built-in types throughout.

    Where the expected text is no literal (`Decimal('1')`), the texts are compared.
    """
    if len(answer.text) > RESULT_CHARS:
        return False
    if answer.plain and answer.text == expected:
        return True
    try:
        wanted = ast.literal_eval(expected)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return answer.text == expected
    return answer.plain and is_text_of(answer.text, wanted)


def is_text_of(text: str, wanted: Any) -> bool:
    """Whether `text` is the `repr` of `wanted`, whatever order its sets and dictionaries are in."""
    if text == repr(wanted):
        return True
    if not _has_orders(wanted):
        return False
    try:
        return same(_value_of(text), wanted)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False


def _has_orders(value: Any) -> bool:
    """Whether equal values may be written in several ways."""
    if isinstance(value, dict):
        return len(value) > 1 or any(map(_has_orders, value.values()))
    return isinstance(value, set) or (isinstance(value, list | tuple) and any(map(_has_orders, value)))


def _value_of(text: str) -> Any:
    """A literal that the sandbox sent. Raises ValueError and what `literal_eval` raises.

    Only data are read, nested as deep as results are: other syntax may end the process of whoever parses it.
    """
    position, depth, complete = 0, 0, False
    while position < len(text):
        token = TOKEN.match(text, position)
        if token is None or (complete and token.lastgroup in ("open", "value")):
            raise ValueError("not a literal")
        position = token.end()
        complete = token.lastgroup in ("value", "close")
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
    return ast.literal_eval(text)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types throughout; a float is the same by its digits (`-0.0` is not `0.0`)."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        kept = {(type(key), key): value for key, value in b.items()}
        return len(a) == len(b) and all(
            (type(key), key) in kept and same(value, kept[type(key), key]) for key, value in a.items()
        )
    if isinstance(a, set | frozenset):
        return a == b and {type(item) for item in a} == {type(item) for item in b}
    return repr(a) == repr(b) if isinstance(a, float | complex) else bool(a == b)


def _same(first: Answer, second: Answer | None) -> bool:
    if second is None or second.error is not None or first.plain != second.plain:
        return False
    if first.text == second.text:
        return True
    try:
        return first.plain and same(_value_of(first.text), _value_of(second.text))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False


def ran_out_of_time(outcome: ExecResult) -> bool:
    return outcome.ended is EndReason.TIMEOUT or outcome.exit_code in CPU_EXIT_CODES


def _end_of(outcome: ExecResult) -> str:
    """How the run ended, with the end of what it printed, for people."""
    how = f"the run ended early ({outcome.ended}, exit code {outcome.exit_code})"
    said = outcome.output.decode("utf-8", "replace").strip()
    return f"{how}: {said[-300:]}" if said else how


def parse_records(data: bytes) -> dict[tuple[int, int], Answer]:
    """Records `<pass> <case> <length>\\n<length bytes>` → answers.

    What does not parse ends the reading; of several records of a case the first one counts.
    """
    answers: dict[tuple[int, int], Answer] = {}
    position = 0
    while len(answers) < MAX_ANSWERS and (end := data.find(b"\n", position, position + 60)) != -1:
        fields = data[position:end].split(b" ")
        if len(fields) != 3 or not all(field.isdigit() and len(field) < 12 for field in fields):
            break
        start, length = end + 1, int(fields[2])
        if start + length > len(data):
            break
        key = int(fields[0]), int(fields[1])
        if key not in answers:
            answers[key] = parse_answer(data[start : start + length])
        position = start + length
    return answers


def parse_answer(body: bytes) -> Answer:
    """`V text` of plain data, `O text` of another object, or `E message`; what is none of them is an error."""
    kind, text = body[:2], body[2:].decode("utf-8", "replace")
    if kind in (b"V ", b"O "):
        return Answer(text, plain=kind == b"V ")
    return Answer(error=text if kind == b"E " else "the answer cannot be read")
