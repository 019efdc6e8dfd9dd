"""Reference of the command line: every command of the Typer app `opencomposer`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup, TyperOption

from scripts.docs.markdown import GENERATED, code, plain, table

COMMON = {"--json", "--project"}
"""Options of every command, which the head of the page explains."""


def page() -> str:
    from typer.main import get_command

    from opencomposer.app import app
    from opencomposer.nouns import PROGRAM

    root = get_command(app)
    text = [
        "# Command line",
        GENERATED.format(source="the commands of `opencomposer/`"),
        f"`{PROGRAM} NOUN VERB`, with the verbs list, get, create, update, delete, start and stop. Every command takes "
        "`--json` (answer in JSON) and `--project SLUG`. "
        "[Using the command line](../guides/cli.md) explains log-in, output and exit status.",
    ]
    previous = ""
    for words, command in commands(root, PROGRAM):
        group = " ".join(words.split()[:2])
        if group != previous:
            text.append(f"## {group}")
            previous = group
        if isinstance(command, TyperGroup):
            text.append(plain(command.get_short_help_str(400)))
            continue
        if words != group:
            text.append(f"### {words}")
        text.append(described(words, command))
    return "\n\n".join(filter(None, text)) + "\n"


def commands(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    """Every command below `command` with the words that call it, groups before their members."""
    if isinstance(command, TyperGroup):
        for name, one in command.commands.items():
            yield f"{words} {name}", one
            yield from commands(one, f"{words} {name}")


def described(words: str, command: Any) -> str:
    context = command.context_class(command, info_name=words)
    usage = " ".join([words, *command.collect_usage_pieces(context)])
    parts = [plain(command.help or ""), f"```\n{usage}\n```"]
    rows = []
    for parameter in command.params:
        option = isinstance(parameter, TyperOption)
        if option and parameter.hidden:
            continue
        if option and set(parameter.opts) & COMMON:
            continue
        names = (
            (*parameter.opts, *parameter.secondary_opts) if option else (parameter.metavar or parameter.name.upper(),)
        )
        kind = "flag" if option and parameter.is_flag else parameter.display_type(context)
        rows.append([", ".join(map(code, names)), plain(kind.strip("<>")), plain(parameter.help or "")])
    if rows:
        parts.append(table(["Argument", "Value", "Meaning"], rows))
    example = (command.epilog or "").removeprefix("Example: ")
    if example:
        parts.append(f"Example: {code(example)}")
    return "\n\n".join(filter(None, parts))
