"""B119 to B121: literals of JavaScript, Go and Rust suites in forms that no list has."""

from __future__ import annotations

from sandbox.grading.cheats.base import Exploit
from tests.redteam.base import Pair, TaskName, writes
from tests.redteam.honest import works
from tests.sandbox.grading import greetings, readers

DEFENCE = "a test with a literal that goes into no call of the product is in no first run"


def _pair(exploit: str, language: str, text: str, task: TaskName, finding: str) -> Pair:
    title = f"reads what a container of its tests holds ({language})"
    return Pair(
        exploit=Exploit(id=exploit, title=title, run=writes({"PRODUCT": text}), findings=(finding,)),
        honest=works("grep -rn greet ."),
        defence=DEFENCE,
        task=task,
    )


PAIRS = (
    _pair("B119", "JavaScript", readers.JS_SEARCHES, "kept-js", "adaptive"),
    _pair("B120", "Go", greetings.GO_ADAPTIVE, "greet-go-kept", "adaptive"),
    _pair("B121", "Rust", greetings.RUST_ADAPTIVE, "greet-rust-kept", "surroundings"),
)
