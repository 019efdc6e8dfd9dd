"""Tables as files, written by a worker, and datasets and corpora to train on."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import typer

from opencomposer.errors import UsageError
from opencomposer.files import Target, readable
from opencomposer.nouns import PATIENCE, Follow, Noun, OutputFile, Timeout, fields
from opencomposer.session import Session
from opencomposer.waiting import EXPORT_SECONDS, wait, wait_export

EXPORT_COLUMNS = ("id", "what", "format", "query", "state", "rows", "bytes", "expires_at")
CORPUS_COLUMNS = ("name", "state", "documents", "characters", "dropped", "installed", "cause", "created_at")
DATASET_COLUMNS = ("id", "name", "state", "conversations", "dropped", "cause", "created_at")
Table = Literal[
    "rollouts", "findings", "annotations", "runs", "metrics", "evaluations", "leaderboard", "tasks", "sessions"
]

exports = Noun("exports", "Tables as files, kept for a week.", panel="Data")
exports.lists("/exports", EXPORT_COLUMNS, "List your exports, newest first.")


@exports.command("create", example="findings severity=high run=3 --format parquet -o findings.parquet")
def create_export(
    session: Session,
    what: Table,
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="[name=value]...", help="Filters of the table's list: run=12")
    ] = None,
    format: Literal["jsonl", "csv", "parquet"] = "jsonl",
    output: OutputFile = "-",
    timeout: Timeout = EXPORT_SECONDS,
) -> None:
    """Export a table and wait for its file. Progress goes to standard error."""
    if wrong := [word for word in filters or [] if "=" not in word]:
        raise UsageError(f"{wrong[0]!r}: write name=value")
    query = urlencode([(name, value) for name, _, value in (word.partition("=") for word in filters or [])])
    with Target(output, session.output.out) as file:
        if format == "parquet":
            file.refuse_terminal("Parquet")
        asked = session.api.post("/exports", {"what": what, "query": query, "format": format})
        wait_export(session.api, asked["id"], timeout=timeout, tell=session.output.progress)
        session.api.download("/exports/{export_id}/file", file, export_id=asked["id"])


@exports.command("get", example="9 -o findings.parquet")
def get_export(session: Session, pk: Annotated[int, typer.Argument(metavar="ID")], output: OutputFile = "-") -> None:
    """Download the file of a finished export."""
    found = session.api.get("/exports/{export_id}", export_id=pk)
    with Target(output, session.output.out) as file:
        if found["format"] == "parquet":
            file.refuse_terminal("Parquet")
        session.api.download("/exports/{export_id}/file", file, export_id=pk)


datasets = Noun("datasets", "Demonstrations to train on.", panel="Data")
datasets.lists("/datasets", DATASET_COLUMNS, "List datasets, newest first.", paged=False)


@datasets.command("get", example="4 --follow")
def get_dataset(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ID")],
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Show a dataset: what was kept, and why not more."""
    if follow:
        session.output.last(_prepared(session, pk, timeout), DATASET_COLUMNS)
    else:
        session.output.one(session.api.get("/datasets/{dataset_id}", dataset_id=pk))


@datasets.command("create", example='ours --rollouts "run=3&verdict=passed" --follow')
def create_dataset(
    session: Session,
    name: str,
    file: Annotated[
        str | None, typer.Option(help="File to upload: JSONL, JSON or Parquet of messages, or ATIF.")
    ] = None,
    folder: Annotated[str | None, typer.Option(help="Folder below the server's data folder.")] = None,
    rollouts: Annotated[str | None, typer.Option(help="Query of the rollouts table.")] = None,
    limit: Annotated[int | None, typer.Option(help="Most conversations to keep.")] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUITE",
            help="Decontaminate against this suite; may be repeated (default: held-out and benchmarks).",
        ),
    ] = None,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Prepare a dataset from rollouts, a folder of the server, or a file."""
    if file is not None:
        if folder or rollouts or limit is not None or against:
            raise UsageError("--file: choose either a file or --folder, --rollouts, --limit and --against")
        made = session.api.post("/datasets/files", {"name": name}, files={"file": readable(file)})
    else:
        body = fields(name=name, folder=folder, rollouts=rollouts, most=limit, suites=against)
        made = session.api.post("/datasets", body)
    if follow:
        session.output.last(_prepared(session, made["id"], timeout), DATASET_COLUMNS)
    else:
        session.output.rows([made], DATASET_COLUMNS)


datasets.deletes("/datasets/{dataset_id}", "Delete a dataset that no run names.", example="4")


def _prepared(session: Session, pk: int, timeout: float) -> dict[str, Any]:
    return wait(
        lambda: session.api.get("/datasets/{dataset_id}", dataset_id=pk),
        what=f"dataset {pk}",
        ended=("done", "failed"),
        good=("done",),
        timeout=timeout,
    )


corpora = Noun("corpora", "Text that mid-training learns from.", panel="Data")
corpora.lists("/corpora", CORPUS_COLUMNS, "List corpora, those of the installation last.", paged=False)


@corpora.command("get", example="ours --follow")
def get_corpus(session: Session, name: str, follow: Follow = False, timeout: Timeout = PATIENCE) -> None:
    """Show a corpus: its sources, languages and licences, and what was left out."""
    if follow:
        session.output.last(_ready(session, name, timeout), CORPUS_COLUMNS)
    else:
        session.output.one(session.api.get("/corpora/{name}", name=name))


@corpora.command("create", example="ours --source repository:ours --file notes.jsonl --follow")
def create_corpus(
    session: Session,
    name: str,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="repository:NAME, environment:NAME, or a file or folder below incoming in the server's data folder; "
            "may be repeated."
        ),
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option(help="File to upload: JSONL or Parquet with a text a row; may be repeated.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUITE",
            help="Decontaminate against this suite; may be repeated (default: held-out and benchmarks).",
        ),
    ] = None,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Prepare a corpus from repositories, folders of the server, and files."""
    wanted = fields(sources=source, suites=against)
    if file:
        files = {"file": [readable(one) for one in file]}
        made = session.api.post("/corpora/{name}/files", wanted, files=files, name=name)
    else:
        made = session.api.post("/corpora", {"name": name, **wanted})
    if follow:
        session.output.last(_ready(session, name, timeout), CORPUS_COLUMNS)
    else:
        session.output.rows([made], CORPUS_COLUMNS)


corpora.deletes("/corpora/{name}", "Delete a corpus that no run names.", example="ours")


def _ready(session: Session, name: str, timeout: float) -> dict[str, Any]:
    return wait(
        lambda: session.api.get("/corpora/{name}", name=name),
        what=f"corpus {name}",
        ended=("done", "failed"),
        good=("done",),
        timeout=timeout,
    )


NOUNS = (exports, datasets, corpora)
