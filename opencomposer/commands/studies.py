"""Mid-training studies: three lengths of mid-training of one policy, each followed by the same SFT and the same RL."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opencomposer.errors import UsageError
from opencomposer.files import assignment, read_json
from opencomposer.nouns import Noun, fields
from opencomposer.run_files import assign
from opencomposer.session import Session

COLUMNS = ("id", "name", "policy", "codebase", "runs", "finished", "live", "failed", "created_by")
CHAIN_COLUMNS = (
    *("level", "seed", "midtrain", "sft", "rl"),
    *("heldout_loss", "codebase_loss", "sft_loss", "reward", "pass1", "missing"),
)
STAGES = ("midtrain", "sft", "rl")

studies = Noun("studies", "Mid-training studies.", panel="Training")
studies.lists("/studies", COLUMNS, "List mid-training studies, newest first.")
studies.acts(
    "stop", "/studies/{study_id}/stop", COLUMNS, "Cancel the runs of a study that have not ended.", example="2"
)


@studies.command("get", example="2")
def get_study(session: Session, pk: Annotated[int, typer.Argument(metavar="ID")]) -> None:
    """Show a study: a row for each chain of runs, and the rank correlation of loss after SFT and reward."""
    found = session.api.get("/studies/{study_id}", study_id=pk)
    if session.output.as_json:
        session.output.one(found)
        return
    session.output.rows([found["study"]], COLUMNS)
    session.output.line("")
    runs = [{stage: f"{chain[stage]['id']} {chain[stage]['state']}" for stage in STAGES} for chain in found["chains"]]
    session.output.rows([{**chain, **of} for chain, of in zip(found["chains"], runs, strict=True)], CHAIN_COLUMNS)
    session.output.line("")
    correlation = "not defined" if found["correlation"] is None else f"{found['correlation']:.3f}"
    session.output.line(
        f"rank correlation of minus {found['measured']} after SFT and reward: {correlation} "
        f"({found['points']} of {len(found['chains'])} points)"
    )


@studies.command("create", example="'does it pay' --policy base --midtrain midtrain --sft sft-expert --rl real-small")
def create_study(
    session: Session,
    name: Annotated[str | None, typer.Argument(help="Name; of a file, its own.")] = None,
    file: Annotated[
        str | None,
        typer.Option(help="JSON as `wanted` of `studies get --json`, in place of presets; - is standard input."),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Policy that every chain starts from.")] = None,
    midtrain: Annotated[str | None, typer.Option(help="Preset of mid-training; `presets list` names them.")] = None,
    sft: Annotated[str | None, typer.Option(help="Preset of SFT.")] = None,
    rl: Annotated[str | None, typer.Option(help="Preset of RL.")] = None,
    codebase: Annotated[
        str | None, typer.Option(help="repository:NAME, environment:NAME, corpus:NAME or a folder.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="0,1,2", help="Seeds; each has a chain of every level.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="midtrain.steps=60", help="Change a field of a stage; may be repeated."),
    ] = None,
) -> None:
    """Create a study and start its runs. `midtrain.steps` are those of level S; M has 3 times, L 9 times as many."""
    wanted: dict[str, Any] = read_json(file) if file else _stages(session, midtrain, sft, rl)
    if not isinstance(wanted, dict):
        raise UsageError(f"{file}: a study is a JSON object")
    listed = None if seeds is None else [one.strip() for one in seeds.split(",")]
    wanted |= fields(name=name, policy=policy, codebase=codebase, seeds=listed)
    for word in changes or []:
        path, value = assignment(word)
        assign(wanted, path.split("."), value)
    made = session.api.post("/studies", wanted)
    session.output.said(f"study {made['id']}: {made['runs']} runs of {made['name']}", made)


def _stages(session: Session, *keys: str | None) -> dict[str, Any]:
    """Stage configurations of the presets. Raises UsageError."""
    known = {one["key"]: one["config"]["stage"] for one in session.api.get("/runs/presets")}
    found: dict[str, Any] = {}
    for kind, key in zip(STAGES, keys, strict=True):
        fitting = [name for name, stage in known.items() if stage["kind"] == kind]
        if key not in fitting:
            raise UsageError(f"--{kind}: name one of {', '.join(fitting)}, or give the whole study with --file")
        found[kind] = known[key]
    return found


NOUNS = (studies,)
