"""How command lines are made: `oc NOUN VERB …`, with `--json` after every verb."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from oc.client import Client
from oc.show import Output

Handler = Callable[[Client, argparse.Namespace, Output], None]
NUMBERS = ("id", "number", "rollout", "before", "after")
"""Arguments that are whole numbers."""
HOURS = 6 * 3600.0
"""Seconds that is waited for work on the workers unless `--timeout` says otherwise."""


class Verbs:
    """The verbs of one noun."""

    def __init__(self, parsers: Any, common: argparse.ArgumentParser) -> None:
        self._parsers, self._common = parsers, common

    def add(self, name: str, words: str, *arguments: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = self._parsers.add_parser(name, help=words, parents=[self._common])
        for argument in arguments:
            made.add_argument(argument, type=int if argument in NUMBERS else str)
        return made

    def __getitem__(self, name: str) -> argparse.ArgumentParser:
        found: argparse.ArgumentParser = self._parsers.choices[name]
        return found

    def listing(self, noun: str, *filters: str) -> argparse.ArgumentParser:
        """`list` with these filters, which are those of the page of the same name."""
        made = self.add("list", f"{noun}, newest first")
        made.add_argument("--limit", type=int, default=50)
        optional(made, *filters)
        return made


class Grammar:
    """The whole command line. Each noun's module adds its own."""

    def __init__(self, description: str | None) -> None:
        self.parser = argparse.ArgumentParser(prog="oc", description=description)
        self.common = argparse.ArgumentParser(add_help=False)
        self.common.add_argument("--json", action="store_true", help="answer in JSON")
        self.common.add_argument("--project", default="", help="short name of the project (default: OC_PROJECT)")
        self.nouns = self.parser.add_subparsers(dest="noun", required=True)

    def noun(self, name: str, words: str) -> Verbs:
        return Verbs(self.nouns.add_parser(name, help=words).add_subparsers(dest="verb", required=True), self.common)


def optional(parser: argparse.ArgumentParser, *names: str, kind: type = str) -> None:
    for name in names:
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)


def waits(parser: argparse.ArgumentParser, words: str = "stay until it has ended") -> None:
    parser.add_argument("--follow", action="store_true", help=words)
    patience(parser)


def patience(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--timeout", type=float, default=HOURS, help="seconds to stay; the work goes on after that")


def given(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Those of these options that the command line has."""
    found = {name: getattr(options, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}
