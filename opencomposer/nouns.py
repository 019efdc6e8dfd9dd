"""How commands are declared: `opencomposer NOUN VERB …`, with `--json` and `--project` on each of them.

The verbs are the same for every noun. A command that is one request and one table is declared with `Noun.lists`,
`Noun.gets`, `Noun.deletes` or `Noun.acts`; every other command is a function whose first parameter is the Session, under
`Noun.command`. The rest of its signature is read by Typer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, get_args

import typer

from opencomposer.session import Session
from opencomposer.waiting import WAIT_SECONDS

Verb = Literal["list", "get", "create", "update", "delete", "start", "stop"]
VERBS: tuple[str, ...] = get_args(Verb)
PROGRAM = "opencomposer"
NUMBERS = ("number", "rollout", "rollout_id")
"""Placeholders of paths that are whole numbers, beside those that end in `_id`."""

Limit = Annotated[int, typer.Option(min=1, help="Most items to show.")]
Follow = Annotated[bool, typer.Option("--follow", help="Wait until it has ended, and show its progress.")]
Timeout = Annotated[float, typer.Option(help="Seconds that --follow waits; the work continues after that.")]
OutputFile = Annotated[str, typer.Option("--output", "-o", help="File to write; - is standard output.")]
Role = Literal["viewer", "reviewer", "operator", "admin"]
PATIENCE = WAIT_SECONDS
"""Default of `--timeout`."""

Command = Callable[..., None]


class Noun:
    """The commands of one kind of thing. `panel` is the heading under which `opencomposer --help` lists it."""

    def __init__(self, name: str, help: str, *, panel: str) -> None:
        self.name, self.panel = name, panel
        self.app = typer.Typer(help=help, no_args_is_help=True, add_completion=False)

    def command(self, verb: Verb, *, example: str) -> Callable[[Command], Command]:
        """Register a function as this verb; its docstring is the help text. `example` is what follows the verb."""

        def register(function: Command) -> Command:
            words = " ".join(part for part in (PROGRAM, self.name, verb, example) if part)
            self.app.command(verb, epilog=f"Example: {words}")(adapted(function))
            return function

        return register

    def lists(
        self,
        path: str,
        columns: Sequence[str],
        help: str,
        *,
        example: str = "",
        filters: Sequence[str] = (),
        paged: bool = True,
    ) -> None:
        """`list`: a table of what GET `path` returns. `filters` are query parameters, each an option."""

        def run(session: Session, limit: int | None = None, **given: Any) -> None:
            query, parts = _divided(given, filters)
            if paged:
                session.output.rows(session.api.pages(path, limit=limit, params=query, **parts), columns)
            else:
                session.output.rows(session.api.get(path, query, **parts), columns)

        options: list[tuple[str, Any, Any]] = [("limit", Limit, 50)] if paged else []
        options += [(name, Annotated[str | None, typer.Option(help="Filter.")], None) for name in filters]
        self._declare("list", run, path, help, example, options)

    def gets(self, path: str, help: str, *, example: str) -> None:
        """`get`: every field of what GET `path` returns."""
        self._declare(
            "get", lambda session, **parts: session.output.one(session.api.get(path, **parts)), path, help, example
        )

    def deletes(self, path: str, help: str, *, example: str) -> None:
        """`delete`: DELETE `path`, whose one placeholder names the thing."""

        def run(session: Session, **parts: Any) -> None:
            session.api.delete(path, **parts)
            (name,) = parts.values()
            session.output.said(f"deleted {name}", {"deleted": name})

        self._declare("delete", run, path, help, example)

    def acts(self, verb: Verb, path: str, columns: Sequence[str], help: str, *, example: str, **fixed: str) -> None:
        """`verb`: POST `path` without a body, and a table of the answer. `fixed` fills placeholders that are no arguments."""

        def run(session: Session, **parts: Any) -> None:
            session.output.rows([session.api.post(path, **{**parts, **fixed})], columns)

        self._declare(verb, run, path, help, example, fixed=fixed)

    def _declare(
        self,
        verb: Verb,
        run: Command,
        path: str,
        help: str,
        example: str,
        options: Sequence[tuple[str, Any, Any]] = (),
        fixed: dict[str, str] | None = None,
    ) -> None:
        parameters = [_parameter("session", Session)]
        for name in re.findall(r"{(\w+)}", path):
            if name not in (fixed or {}):
                kind = int if name.endswith("_id") or name in NUMBERS else str
                metavar = "ID" if name.endswith("_id") else name.upper()
                parameters.append(_parameter(name, Annotated[kind, typer.Argument(metavar=metavar)]))
        parameters += [_parameter(name, annotation, default) for name, annotation, default in options]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__doc__ = help
        self.command(verb, example=example)(run)


def adapted(function: Command) -> Command:
    """The same command for Typer: its Session comes from the context, and `--json` and `--project` are added."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    def run(context: typer.Context, **given: Any) -> None:
        session: Session = context.obj
        session.output.as_json, session.project = given.pop("as_json"), given.pop("project")
        function(session, **given)

    common = [
        _parameter("as_json", Annotated[bool, typer.Option("--json", help="Answer in JSON.")], False),
        _parameter(
            "project",
            Annotated[str, typer.Option("--project", metavar="SLUG", help="Project (default: OPENCOMPOSER_PROJECT).")],
            "",
        ),
    ]
    parameters = [_parameter("context", typer.Context), *own, *common]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__doc__ = function.__doc__
    return run


def fields(**values: Any) -> dict[str, Any]:
    """The fields of a request: those that are given. None means that the server's default, or the present value, stays."""
    return {name: value for name, value in values.items() if value is not None}


def _divided(given: dict[str, Any], filters: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Query parameters, and parts of the path."""
    return {name: given[name] for name in filters}, {name: given[name] for name in given if name not in filters}


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
