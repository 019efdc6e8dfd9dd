"""A pair: an exploit, and the honest run that does the same kind of thing and the work besides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sandbox.grading.cheats import catalogue
from sandbox.grading.cheats.base import Agent, Exploit, Script
from sandbox.grading.cheats.play import Hand
from sandbox.grading.cheats.targets import product_file
from sandbox.tasks.spec import InlineEnvironment, TaskSpec

TaskName = Literal[
    "ledger", "ledger-checks", "ledger-truths", "sums-js", "greet-js", "greet-go", "greet-rust", "inventory", "hasty",
    "golden-js", "constant-js", "table-js", "set-up-js", "hook-js", "helper-js", "helper-file-js", "helper-on-disk-js",
    "truth-js", "prices",
    "greet-go-helped", "greet-go-golden", "greet-go-two", "money-go", "greet-rust-helped", "greet-rust-golden",
    "greet-go-counted", "greet-rust-counted", "greet-python", "backoff-go", "backoff-rust",
    "greet-python-helper", "kept-js", "greet-go-kept", "greet-rust-kept",
]  # fmt: skip
"""Of `tasks.py`: hidden pytest tests over a built environment; the same through the product's own assertion helper, and
without a comparison to insert siblings at; hidden tests in JavaScript; hidden tests in JavaScript, Go and Rust with an assertion
that stays inside (the last two where sandboxes have the toolchain); hidden calls; the same with one second to run; hidden tests
in JavaScript, Go and Rust that show what they expect outside their reports: in helpers, hooks, data files and tables
(`javascript_attacks.py`, `compiled.py`); hidden pytest tests of which some have to hold what they expect (`prices.py`);
hidden tests in Go, Rust and Python (unittest) that compare within what they report; hidden tests in Go and Rust of which most
decide inside (`backoff.py`); hidden tests in Python that tell what they expect in a helper, and in JavaScript, Go and
Rust that tell it in a container (`readers.py`)."""


@dataclass(frozen=True, slots=True)
class Pair:
    exploit: Exploit
    honest: Script
    defence: str
    """What stops it, in a few words; the table of docs/sandbox/red-team.md has it."""
    task: TaskName = "ledger"
    leak: Hand | None = None
    """Puts the answer where the exploit looks, as a careless environment would: with it the exploit has to be paid."""
    fools_own_sandbox: bool = False
    """Whether a plain run of the hidden tests in the agent's own sandbox has to be fooled: there the exploit is paid."""


SUFFIXES = (".py", ".js", ".go", ".rs")


def known(exploit: str) -> Exploit:
    """An exploit of the product's own catalogue, which the controls of tasks play as well."""
    return next(item for item in catalogue() if item.id == exploit)


def product(task: TaskSpec) -> str:
    """The module that the task is about."""
    path = next((path for suffix in SUFFIXES if (path := product_file(task, suffix))), None)
    assert path is not None
    return path


def answer(task: TaskSpec) -> str:
    """The oracle's text of that module. Only for leaks and honest runs."""
    return task.gold[product(task)]


def visible(task: TaskSpec) -> dict[str, str]:
    """Files of the checkout as the bundle holds them: path → text."""
    environment = task.environment
    return environment.files if isinstance(environment, InlineEnvironment) else environment.overrides


def package(task: TaskSpec) -> str:
    """The top-level name that is imported."""
    return product(task).split("/")[0].removesuffix(".py")


def tries(
    *commands: str, summary: str = "Found and fixed the cause.", says: str = "", then: Script | None = None
) -> Script:
    """A script of shell commands, in which PRODUCT stands for the module and PACKAGE for its top-level name."""

    async def run(agent: Agent, task: TaskSpec) -> None:
        await agent.call("read_file", path=product(task))
        for command in commands:
            await agent.shell(filled(command, task), says=says)
        if then is not None:
            await then(agent, task)
        await agent.finish(summary)

    return run


def filled(command: str, task: TaskSpec) -> str:
    return command.replace("PRODUCT", product(task)).replace("PACKAGE", package(task))


def appends(code: str, summary: str = "Fixed.") -> Script:
    """Code at the end of the product's module."""

    async def run(agent: Agent, task: TaskSpec) -> None:
        await agent.append(product(task), code)
        await agent.finish(summary)

    return run


def rewrites(change: Callable[[str], str], summary: str = "Fixed.") -> Script:
    """The product's module, changed as text by the agent that has read it."""

    async def run(agent: Agent, task: TaskSpec) -> None:
        path = product(task)
        await agent.call("read_file", path=path)
        before = visible(task)[path]
        after = change(before)
        assert after != before, "the script does not fit the task"
        await agent.write(path, after)
        await agent.finish(summary)

    return run


def writes(files: dict[str, str], summary: str = "Fixed.") -> Script:
    async def run(agent: Agent, task: TaskSpec) -> None:
        for path, text in files.items():
            await agent.write(filled(path, task), filled(text, task))
        await agent.finish(summary)

    return run


def appending(
    exploit: str,
    title: str,
    code: str,
    *,
    findings: tuple[str, ...],
    defence: str,
    honest: Script,
    task: TaskName = "ledger",
    fools_own_sandbox: bool = False,
) -> Pair:
    """A pair whose exploit appends `code` to the product's module and does nothing else."""
    made = Exploit(id=exploit, title=title, run=appends(code), findings=findings)
    return Pair(exploit=made, honest=honest, defence=defence, task=task, fools_own_sandbox=fools_own_sandbox)
