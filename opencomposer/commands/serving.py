"""Which policy version production serves, and the sessions that the gateway recorded."""

from __future__ import annotations

import json
import uuid
from typing import Annotated, Any, Literal

import typer

from opencomposer.errors import UsageError
from opencomposer.files import Target, assignment, read_json
from opencomposer.nouns import Noun, OutputFile, fields
from opencomposer.session import Session

PANEL = "Serving"
PROMOTION_COLUMNS = ("id", "kind", "promoted", "canary", "canary_share", "created_by", "created_at", "note")
COMPARED_COLUMNS = ("name", "before", "now", "moved", "margin", "bound", "standing")
SESSION_COLUMNS = ("id", "client_id", "policy_name", "version", "turns", "output_tokens", "malformed", "last_at")
SESSION_FILTERS = ("q", "policy", "version", "canary", "malformed", "signal")
PolicyVersion = Annotated[str, typer.Argument(help="name or name@version")]

promotions = Noun("promotions", "Policy versions that production serves.", panel=PANEL)
promotions.lists("/promotions", PROMOTION_COLUMNS, "List promotions; the newest counts.")


@promotions.command("create", example='base@3 --note "held-out +4 points"')
def create_promotion(
    session: Session,
    policy: PolicyVersion,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show whether it passes the gate.")] = False,
    note: str | None = None,
) -> None:
    """Serve a version to everybody, if it passes the gate."""
    if not dry_run:
        session.output.rows(
            [session.api.post("/promotions/promote", fields(policy=policy, note=note))], PROMOTION_COLUMNS
        )
        return
    found = session.api.get("/promotions/check", {"policy": policy})
    words = "would pass" if found["open"] else found["why"] or "would not pass"
    session.output.said(f"{found['policy']}: {words}", found)
    for seen in [] if session.output.as_json else found["outcomes"]:
        about = seen["rule"].get("suite") or seen["rule"].get("benchmark")
        held = "holds" if seen["ok"] else f"{seen['why']}; {seen['remedy']}"
        session.output.line(f"  {about}: {held}")


@promotions.command("delete", example='--note "worse in use"')
def delete_promotion(session: Session, note: str | None = None) -> None:
    """Roll back: serve what was promoted before."""
    session.output.rows([session.api.post("/promotions/rollback", fields(note=note))], PROMOTION_COLUMNS)


canaries = Noun("canaries", "A version that answers a share of new sessions.", panel=PANEL)


@canaries.command("get", example="--json")
def get_canary(session: Session) -> None:
    """Compare the canary with the promoted version on recorded sessions."""
    found = session.api.get("/promotions/canary")
    session.output.said(
        f"{found['canary']} has {found['share']:.1%} of new sessions: {found['canary_turns']} turns in "
        f"{found['canary_sessions']} sessions; {found['promoted']}: {found['promoted_turns']} in "
        f"{found['promoted_sessions']}; since {found['since']}",
        found,
    )
    if not session.output.as_json:
        session.output.rows(found["rows"], COMPARED_COLUMNS)


@canaries.command("create", example="base@4 0.05")
def create_canary(
    session: Session,
    policy: PolicyVersion,
    share: Annotated[float, typer.Argument(help="Of new sessions: more than 0 and less than 1.")],
    note: str | None = None,
) -> None:
    """Serve a version to a share of new sessions."""
    body = fields(policy=policy, share=share, note=note)
    session.output.rows([session.api.post("/promotions/canary", body)], PROMOTION_COLUMNS)


@canaries.command("stop", example="--note 'slower'")
def stop_canary(session: Session, note: str | None = None) -> None:
    """Serve only the promoted version."""
    session.output.rows([session.api.post("/promotions/end-canary", fields(note=note))], PROMOTION_COLUMNS)


gate = Noun("gate", "Rules that a version must pass to be promoted.", panel=PANEL)
gate.gets("/promotions/gate", "Show the rules.", example="--json")


@gate.command("update", example="gate.json")
def update_gate(
    session: Session, file: Annotated[str, typer.Argument(help="JSON as `gate get --json` prints it.")]
) -> None:
    """Replace the rules."""
    session.output.one(session.api.put("/promotions/gate", read_json(file)))


gateway = Noun("gateway", "The endpoint that serves the promoted policy.", panel=PANEL)


@gateway.command("get", example="--json")
def get_gateway(session: Session) -> None:
    """Show what is served, and the settings of the gateway."""
    newest: dict[str, Any] = next(session.api.pages("/promotions", limit=1), {})
    session.output.one(
        {
            "promoted": newest.get("promoted"),
            "canary": newest.get("canary"),
            "canary_share": newest.get("canary_share", 0.0),
            "settings": session.api.get("/gateway/settings"),
        }
    )


@gateway.command("update", example="retention_days=7 canary.edit_drop=0.1")
def update_gateway(
    session: Session,
    values: Annotated[list[str], typer.Argument(metavar="name=value...", help="As `gateway get` names them.")],
) -> None:
    """Change settings of the gateway."""
    changes: dict[str, Any] = {}
    for name, value in (assignment(word) for word in values):
        group, _, inner = name.partition(".")
        if inner:
            changes.setdefault(group, {})[inner] = value
        else:
            changes[name] = value
    session.output.one(session.api.patch("/gateway/settings", changes))


sessions = Noun("sessions", "Production sessions that the gateway recorded.", panel=PANEL)
sessions.lists(
    "/gateway/sessions",
    SESSION_COLUMNS,
    "List sessions, newest first.",
    filters=SESSION_FILTERS,
    example="--signal reject",
)


@sessions.command("get", example="5 --format atif -o 5.json")
def get_session(
    session: Session,
    pk: Annotated[int, typer.Argument(metavar="ID")],
    format: Annotated[Literal["atif"] | None, typer.Option(help="Write it in this format.")] = None,
    output: OutputFile = "-",
) -> None:
    """Show a session with its turns, signals and rewards."""
    if format is None:
        session.output.one(session.api.get("/gateway/sessions/{session_id}", session_id=pk))
        return
    with Target(output, session.output.out) as file:
        found = session.api.get("/gateway/sessions/{session_id}/atif", session_id=pk)
        file.text(json.dumps(found, ensure_ascii=False) + "\n")


@sessions.command("delete", example="--user ada@example.org")
def delete_sessions(
    session: Session,
    pk: Annotated[int | None, typer.Argument(metavar="[ID]", help="Number of one session.")] = None,
    user: Annotated[str | None, typer.Option(help="Every session of this end user.")] = None,
    own: Annotated[
        str | None, typer.Option(metavar="SESSION", help="One that this client recorded (token of scope gateway).")
    ] = None,
) -> None:
    """Delete a session, or all sessions of an end user."""
    if [pk is None, user is None, own is None].count(False) != 1:
        raise UsageError("name one of: the number of a session, --user, --own")
    if user is not None:
        session.output.rows([session.api.post("/gateway/erase", {"user": user})], ("sessions",))
    elif own is not None:
        session.api.delete("/gateway/own-sessions/{client_id}", client_id=own)
        session.output.said(f"deleted session {own}", {"deleted": own})
    else:
        session.api.delete("/gateway/sessions/{session_id}", session_id=pk)
        session.output.said(f"deleted session {pk}", {"deleted": pk})


signals = Noun("signals", "What users did after an answer (token of scope gateway).", panel=PANEL)


@signals.command("create", example="editor-42 accept --turn 0")
def create_signal(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="SESSION", help="As the client named it in its requests.")],
    kind: Literal["accept", "reject", "edit_kept", "dissatisfied", "latency"],
    turn: int | None = None,
    value: float | None = None,
    after: Annotated[str | None, typer.Option(help="When an edit was looked at: '30 minutes', '2 commits'.")] = None,
    signal_id: Annotated[
        str | None, typer.Option(help="Your own id: sent twice, kept once (default: a new one).")
    ] = None,
) -> None:
    """Report what a user did after an answer."""
    if kind == "edit_kept" and not after:
        raise UsageError("edit_kept needs the time of the look: --after '30 minutes' or --after '2 commits'")
    signal = fields(id=signal_id or str(uuid.uuid4()), kind=kind, turn=turn, value=value, after=after)
    made = session.api.post("/gateway/signals", {"session": name, "signals": [signal]})
    session.output.rows([made], ("new", "known"))


NOUNS = (promotions, canaries, gate, gateway, sessions, signals)
