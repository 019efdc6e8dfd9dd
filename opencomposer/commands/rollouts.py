"""Rollouts, their trajectories and groups, forks and findings."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

from opencomposer.client import PAGE, Client
from opencomposer.errors import UsageError
from opencomposer.files import Target, readable
from opencomposer.nouns import Noun, OutputFile, fields
from opencomposer.session import Session

PANEL = "Rollouts"
ROLLOUT_COLUMNS = (
    *("id", "run_id", "task", "sample", "state", "verdict", "reward", "turns", "output_tokens", "stop_reason"),
)
ROLLOUT_FILTERS = (
    *("run", "evaluation", "task", "verdict", "stop_reason", "version", "label", "annotation", "text", "finding"),
    *("quarantined",),
    *("reward_min", "reward_max", "tool_errors_min", "tool_errors_max", "turns_min", "turns_max"),
    *("tokens_min", "tokens_max", "step_min", "step_max"),
)
HIT_COLUMNS = ("turn", "where", "before", "match", "after")
GROUP_COLUMNS = ("id", "run_id", "evaluation_id", "task", "state", "size", "passed", "mean_reward", "consumed_step")
FORK_COLUMNS = ("id", "parent_id", "turn", "state", "size", "passed", "group_id", "cause")
FINDING_COLUMNS = ("id", "severity", "rule", "state", "run_id", "rollout_id", "task", "summary", "quarantined")
FINDING_FILTERS = ("rule", "severity", "state", "subject", "run", "task", "quarantined")
RULE_COLUMNS = ("id", "version", "title", "looks_at", "hazard")

OtherFormat = Literal["atif", "messages", "mini-swe-agent"]

rollouts = Noun("rollouts", "Attempts of a policy at tasks.", panel=PANEL)
rollouts.lists(
    "/rollouts",
    ROLLOUT_COLUMNS,
    "List rollouts, newest first.",
    filters=ROLLOUT_FILTERS,
    example="--run 3 --verdict failed",
)


@rollouts.command("get", example="77 --search IndexError")
def get_rollout(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ID")],
    search: Annotated[str | None, typer.Option(help="Show where a text stands in its trajectory.")] = None,
) -> None:
    """Show a rollout, or search its trajectory."""
    if search is not None:
        found = session.api.get("/rollouts/{rollout_id}/search", {"q": search}, rollout_id=pk)
        session.output.rows(found["hits"], HIT_COLUMNS)
    else:
        session.output.one(session.api.get("/rollouts/{rollout_id}", rollout_id=pk))


rollout_tokens = Noun("rollout-tokens", "Token ids and their numbers.", panel=PANEL)


@rollout_tokens.command("get", example="77 --turn 3 --json")
def get_rollout_tokens(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ROLLOUT")],
    turn: int | None = None,
    segment: int | None = None,
    at: Annotated[int | None, typer.Option(help="First token to show.")] = None,
) -> None:
    """Show token ids, log-probabilities and masks of a turn or segment."""
    query = fields(turn=turn, segment=segment, at=at)
    session.output.one(session.api.get("/rollouts/{rollout_id}/tokens", query, rollout_id=pk))


trajectories = Noun("trajectories", "Trajectories of rollouts, and those of other projects.", panel=PANEL)


@trajectories.command("get", example="77 --format html -o 77.html")
def get_trajectory(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="ROLLOUT|NAME", help="Number of a rollout, or name with --imported.")],
    imported: Annotated[bool, typer.Option("--imported", help="One that `trajectories create` kept.")] = False,
    format: Annotated[
        Literal["turns", "html", "jsonl", "atif", "messages", "mini-swe-agent"] | None,
        typer.Option(help="turns: a JSON object a line; html, jsonl: all of it; others: that project's format."),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="With --format turns: also a line for each segment.")
    ] = False,
    output: OutputFile = "-",
) -> None:
    """Write a trajectory to a file or the terminal."""
    form = format or ("atif" if imported else "turns")
    if tokens and form != "turns":
        raise UsageError("--tokens: only --format turns has them beside its turns; jsonl always has them")
    if imported:
        if form in ("turns", "html", "jsonl"):
            raise UsageError(f"--format {form}: an imported trajectory comes as atif, messages or mini-swe-agent")
        found = session.api.get("/tasks/trajectories/{name}/export/{format}", name=name, format=form)
        write_document(session, found, output)
        return
    if not name.isdigit():
        raise UsageError(f"{name!r} is not the number of a rollout; add --imported for a trajectory of that name")
    pk = int(name)
    if form == "turns":
        with Target(output, session.output.out) as file:
            _write_turns(session.api, pk, file, tokens=tokens)
    elif form in ("html", "jsonl"):
        with Target(output, session.output.out) as file:
            session.api.download("/rollouts/{rollout_id}/whole/{format}", file, rollout_id=pk, format=form)
    else:
        found = session.api.get("/tasks/rollouts/{rollout_id}/export/{format}", rollout_id=pk, format=form)
        write_document(session, found, output)


@trajectories.command("create", example="record.json")
def create_trajectory(session: Session, file: str) -> None:
    """Import a trajectory: ATIF, OpenAI messages or mini-swe-agent; the format is detected."""
    made = session.api.post("/tasks/trajectories/import", files={"file": readable(file)})
    session.output.rows([made], ("name", "not_carried"))


def write_document(session: Session, found: dict[str, Any], output: str) -> None:
    """The document goes to its file. What its format has no place for is reported when the terminal is free."""
    with Target(output, session.output.out) as file:
        file.text(json.dumps(found["document"], ensure_ascii=False) + "\n")
    if output != "-":
        lost = found["not_carried"]
        words = f"{output}; without {', '.join(lost)}" if lost else output
        session.output.said(words, {"file": output, "not_carried": lost})


def _write_turns(client: Client, pk: int, out: Target, *, tokens: bool) -> None:
    """The facts of the rollout in a first line, then a line for each turn; with `tokens`, a line for each segment."""
    segments: dict[int, Any] = {}
    offset: int | None = 0
    while offset is not None:
        query = {"offset": offset, "limit": PAGE, "tokens": tokens or None}
        page = client.get("/rollouts/{rollout_id}/trajectory", query, rollout_id=pk)
        turns = page.pop("turns")
        segments |= {segment["index"]: segment for segment in page.pop("segments")}
        if offset == 0:
            out.text(json.dumps({"rollout": page}) + "\n")
        for turn in turns:
            out.text(json.dumps({"turn": turn}) + "\n")
        offset = page["next"]
    for segment in segments.values():
        out.text(json.dumps({"segment": segment}) + "\n")


groups = Noun("groups", "All rollouts of one prompt.", panel=PANEL)
groups.lists("/groups", GROUP_COLUMNS, "List groups, newest first.", filters=("run", "evaluation", "state"))


@groups.command("get", example="12 --compare")
def get_group(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ID")],
    compare: Annotated[
        bool, typer.Option("--compare", help="Advantages of its rollouts, and where they diverge.")
    ] = False,
) -> None:
    """Show a group with its rollouts."""
    if compare:
        session.output.one(session.api.get("/groups/{group_id}/comparison", group_id=pk))
    else:
        session.output.one(session.api.get("/groups/{group_id}", group_id=pk))


forks = Noun("forks", "Other samples from a turn of a rollout.", panel=PANEL)
forks.gets("/forks/{fork_id}", "Show a fork.", example="5")
forks.acts("stop", "/forks/{fork_id}/cancel", FORK_COLUMNS, "Cancel a fork.", example="5")


@forks.command("list", example="77")
def list_forks(session: Session, rollout: int) -> None:
    """List the forks of a rollout."""
    session.output.rows(session.api.get("/forks", {"rollout": rollout}), FORK_COLUMNS)


@forks.command("create", example="77 4 --count 8 --policy base@3")
def create_fork(
    session: Session,
    rollout: int,
    turn: Annotated[int, typer.Argument(help="Turns of the rollout that are kept.")],
    count: Annotated[int | None, typer.Option(help="Samples to draw.")] = None,
    policy: Annotated[str | None, typer.Option(help="Policy that continues.")] = None,
) -> None:
    """Continue a rollout from one of its turns."""
    body = fields(turn=turn, count=count, policy=policy)
    session.output.rows([session.api.post("/forks", body, params={"rollout": rollout})], FORK_COLUMNS)


findings = Noun("findings", "What the auditor saw in rollouts, tasks and runs.", panel=PANEL)
findings.lists(
    "/findings", FINDING_COLUMNS, "List findings, newest first.", filters=FINDING_FILTERS, example="--severity high"
)
findings.gets("/findings/{finding_id}", "Show a finding with its history.", example="7")


@findings.command("update", example="7 confirm --note 'reads the hidden tests'")
def update_finding(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ID")],
    decision: Literal["confirm", "dismiss", "reopen"],
    note: str | None = None,
) -> None:
    """Decide on a finding."""
    made = session.api.post("/findings/{finding_id}/{action}", fields(note=note), finding_id=pk, action=decision)
    session.output.rows([made], FINDING_COLUMNS)


@findings.command("start", example="3")
def start_audit(
    session: Session,
    run: int,
    judge: Annotated[bool, typer.Option("--judge", help="The language model reads its rollouts, too.")] = False,
) -> None:
    """Audit a run again with the present rules."""
    session.api.post("/findings/audit", params={"run": run, "judge": judge})
    session.output.said(f"audit of run {run} started", {"audited": run})


finding_rules = Noun("finding-rules", "The auditor's rules.", panel=PANEL)
finding_rules.lists("/findings/rules", RULE_COLUMNS, "List the rules.", paged=False)

NOUNS = (rollouts, trajectories, rollout_tokens, groups, forks, findings, finding_rules)
