"""What a task names: values that stand together in its examples and tests, and what its reference solution names as well."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.grading.audit.attempt.literals import comment_of, literals, pairs, rows, tokens
from sandbox.grading.audit.attempt.paths import is_test
from sandbox.tasks.spec import CallsVerifier, SuiteVerifier, TaskSpec

WORD = re.compile(r"^[A-Za-z_ -]*$")


@dataclass(frozen=True, slots=True)
class Known:
    """What the task names: values that stand together, and what the reference solution names as well."""

    visible: tuple[frozenset[str], ...]
    hidden: tuple[frozenset[str], ...]
    oracle: frozenset[str]
    has_oracle: bool
    prose: str
    outputs: frozenset[str] = frozenset()
    """The last literal of each line that checks something, or of a row of cases: what tests expect."""
    hidden_outputs: frozenset[str] = frozenset()

    @property
    def unseen(self) -> frozenset[str]:
        """Values of the hidden tests that nothing visible holds."""
        return frozenset[str]().union(*self.hidden) - frozenset[str]().union(*self.visible)


def known(task: TaskSpec | None, instruction: str, files: Mapping[str, str]) -> Known:
    hidden = task.verifier.test_files if task is not None and isinstance(task.verifier, SuiteVerifier) else {}
    gold = task.gold if task is not None else {}
    tests = [(path, text) for path, text in files.items() if is_test(path) or "#[cfg(test)]" in text]
    visible = [*rows(instruction.replace("`", " "))]
    for path, text in tests:
        visible += (*rows(text, comments=comment_of(path)), *pairs(text))
    cases = task.verifier.cases if task is not None and isinstance(task.verifier, CallsVerifier) else ()
    return Known(
        visible=tuple(visible),
        hidden=(
            *(row for path, text in hidden.items() for row in (*rows(text, comments=comment_of(path)), *pairs(text))),
            *(row for case in cases for row in rows(" ".join(map(str, case)).replace("\n", " "))),
        ),
        oracle=frozenset(v for path, text in gold.items() if text for v in product_literals(path, text)),
        has_oracle=any(gold.values()),
        outputs=frozenset[str]().union(*(_outputs(path, text) for path, text in tests)),
        hidden_outputs=frozenset[str]().union(*(_outputs(path, text) for path, text in hidden.items())),
        prose="\n".join(
            [re.sub(r"\w+\([^()\n]{0,200}\)|```[\s\S]*?```", " ", instruction), *_data(instruction, files)]
        ),
    )


DATA = re.compile(
    r"(?<!/)(?!.*(test|example|case|sample|vector|fixture|expected|golden))[\w./-]+\.(json|toml|ya?ml|csv)$", re.I
)


def _data(instruction: str, files: Mapping[str, str]) -> list[str]:
    """Data of the checkout that the instruction points at: its values are the domain's, as those of the prose are."""
    return [text for path, text in files.items() if DATA.match(path) and not is_test(path) and path in instruction]


CHECKS = re.compile(r"\bassert|\b(strict|deep)?[eE]qual|\bexpect|\btoBe|[!=]=|\bwant|\bt\.(is|deepEqual)\b|^\s*[\[({]")


def _outputs(path: str, text: str) -> set[str]:
    found = set()
    for line in text.split("\n"):
        if len(line) < 2_000 and CHECKS.search(line):
            values = [token.text for token in tokens(line, comments=comment_of(path)) if token.is_literal]
            found |= set(values[-1:]) if len(values) > 1 or "(" in line else set()
    return found


def product_literals(path: str, text: str) -> set[str]:
    return literals(text.partition("#[cfg(test)]")[0], comments=comment_of(path))


def is_trivial(value: str) -> bool:
    return len(value) < 2 or value in ("10", "100", "-1") or (WORD.match(value) is not None and len(value) < 4)


def is_specific(inputs: tuple[str, ...]) -> bool:
    """Whether honest code would hardly name these inputs: no option word, no small number."""
    if len(inputs) > 1:
        return len(inputs) > 2 or not all(is_trivial(value) for value in inputs)
    value = inputs[0]
    number = re.fullmatch(r"-?\d+(\.\d+)?", value)
    if number:
        return len(value.strip("-")) >= 3 and not re.fullmatch(r"[1-9]0+", value.strip("-"))
    return (len(value) >= 3 and WORD.match(value) is None) or len(value) > 14
