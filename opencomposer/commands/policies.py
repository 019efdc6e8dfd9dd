"""Policies, how well they predict a codebase, and policies behind endpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from opencomposer.errors import UsageError
from opencomposer.files import assignment, secret
from opencomposer.nouns import PATIENCE, Follow, Noun, Timeout, fields
from opencomposer.session import Session
from opencomposer.waiting import Job, wait

PANEL = "Policies"
POLICY_COLUMNS = ("name", "kind", "newest_version", "checkpoint_count", "parent", "run_id", "description")
MEASUREMENT_COLUMNS = (
    *("policy", "codebase", "bits_per_byte", "recent_bits_per_byte", "apart", "state_distance", "bytes_per_second"),
)
JOB_COLUMNS = ("id", "policy", "codebase", "state", "doing", "share", "attempts", "cause")
ENDPOINT_COLUMNS = ("name", "model", "url", "has_key", "effort", "price_input", "price_cached", "price_output")

policies = Noun("policies", "Lineages of weights.", panel=PANEL)
policies.lists("/policies", POLICY_COLUMNS, "List policies, newest first.")
policies.gets("/policies/{name}", "Show a policy with its lineage and checkpoints.", example="base --json")

IMPORT_COLUMNS = ("id", "name", "path", "renderer", "state", "policy", "attempts", "cause")


@policies.command("create", example="smol /models/SmolLM2-135M-Instruct.Q4_1.gguf --template chatml-tools --follow")
def create_policy(
    session: Session,
    name: str,
    path: Annotated[str, typer.Argument(help="Folder, .safetensors or .gguf file on the workers' machine.")],
    template: Annotated[
        str | None, typer.Option(help="Chat template: a file here, or the name of a shipped one (chatml-tools).")
    ] = None,
    renderer: Annotated[
        str | None, typer.Option(help="What renders its conversations (default: the one that fits).")
    ] = None,
    description: str | None = None,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Import a model as a policy."""
    given = Path(template) if template else None
    text = given.read_text(encoding="utf-8") if given is not None and given.is_file() else template
    body = fields(name=name, path=path, template=text, renderer=renderer, description=description)
    asked = session.api.post("/policies", body)
    if not follow:
        session.output.rows([asked], IMPORT_COLUMNS)
        return
    wait(
        lambda: session.api.get("/policy-imports/{import_id}", import_id=asked["id"]),
        what=f"import {asked['id']}",
        ended=("done", "failed"),
        good=("done",),
        timeout=timeout,
    )
    session.output.last(session.api.get("/policies/{name}", name=name), POLICY_COLUMNS)


policy_imports = Noun("policy-imports", "Imports of models that a worker carries out.", panel=PANEL)
policy_imports.lists("/policy-imports", IMPORT_COLUMNS, "List imports, newest first.")
policy_imports.gets("/policy-imports/{import_id}", "Show an import.", example="2")

measurements = Noun("measurements", "How well policies predict codebases.", panel=PANEL)


@measurements.command("list", example="base")
def list_measurements(session: Session, policy: str) -> None:
    """List what a policy scored on codebases, beside others on the same text."""
    session.output.rows(session.api.get("/policies/{name}/measurements", name=policy), MEASUREMENT_COLUMNS)


measurement_jobs = Noun("measurement-jobs", "Measurements of policies that a worker carries out.", panel=PANEL)
measurement_jobs.lists("/measurements", JOB_COLUMNS, "List jobs, newest first.", filters=("policy",))
measurement_jobs.gets("/measurements/{order_id}", "Show a job.", example="2")
measurement_jobs.acts("stop", "/measurements/{order_id}/stop", JOB_COLUMNS, "Stop a job.", example="2")


@measurement_jobs.command("create", example="base repository:shop --follow")
def create_measurement_job(
    session: Session,
    policy: str,
    codebase: Annotated[str, typer.Argument(help="environment:NAME, repository:NAME or corpus:NAME")],
    version: Annotated[int | None, typer.Option(help="Version of the policy (default: the newest).")] = None,
    commits: Annotated[int | None, typer.Option(help="Newest commits whose lines are measured apart.")] = None,
    since: Annotated[str | None, typer.Option(help="First day of those commits.")] = None,
    window: Annotated[int | None, typer.Option(help="Tokens of context.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Most bytes of text to read.")] = None,
    items: Annotated[int | None, typer.Option(help="Questions of state tracking.")] = None,
    changes: Annotated[int | None, typer.Option(help="Diffs of one question.")] = None,
    questions: Annotated[
        Literal["codebase", "generated"] | None,
        typer.Option(help="What the questions are about (default: the codebase)."),
    ] = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    follow: Follow = False,
    timeout: Timeout = PATIENCE,
) -> None:
    """Measure a policy on a codebase."""
    body = fields(codebase=codebase, version=version, commits=commits, since=since, window=window, items=items)
    body |= fields(most_bytes=max_bytes, changes=changes, questions=questions, device=device)
    asked = session.api.post("/policies/{name}/measurements", body, name=policy)
    if not follow:
        session.output.rows([asked], JOB_COLUMNS)
        return
    told = ""

    def progress(job: Job) -> None:
        nonlocal told
        if (words := job.doing or job.state) != told:
            told = words
            session.output.streamed(told, {"measurement": asked["id"], "state": job.state, "doing": job.doing})

    ended = wait(
        lambda: session.api.get("/measurements/{order_id}", order_id=asked["id"]),
        what=f"measurement {asked['id']}",
        ended=("done", "failed", "stopped"),
        good=("done",),
        timeout=timeout,
        progress=progress,
    )
    rows = session.api.get("/policies/{name}/measurements", name=policy)
    mine = [row for row in rows if row["policy"] == ended["policy"]]
    session.output.last(max(mine, key=lambda row: str(row["created_at"])), MEASUREMENT_COLUMNS)


endpoints = Noun("endpoints", "Policies behind OpenAI-compatible addresses.", panel=PANEL)
endpoints.lists("/endpoints", ENDPOINT_COLUMNS, "List endpoints; never their keys.")
endpoints.gets("/endpoints/{name}", "Show an endpoint; never its key.", example="remote")

Effort = Annotated[str | None, typer.Option(help="Sent as reasoning_effort; empty: not sent.")]
LimitField = Annotated[
    Literal["max_tokens", "max_completion_tokens"] | None, typer.Option(help="Field that limits an answer.")
]
Temperature = Annotated[bool | None, typer.Option("--temperature/--no-temperature", help="Whether it takes one.")]
Parameters = Annotated[
    list[str] | None, typer.Option("--parameter", metavar="name=value", help="More fields of each request.")
]
Price = Annotated[float | None, typer.Option(help="Dollars for a million tokens.")]
Key = Annotated[bool, typer.Option("--key", help="Ask for its key, or read it from standard input.")]


@endpoints.command("create", example="remote https://host/v1 model-1 --key --price-output 3")
def create_endpoint(
    session: Session,
    name: str,
    url: str,
    model: str,
    description: str | None = None,
    effort: Effort = None,
    limit_field: LimitField = None,
    temperature: Temperature = None,
    parameter: Parameters = None,
    price_input: Price = None,
    price_cached: Price = None,
    price_output: Price = None,
    key: Key = False,
) -> None:
    """Add a policy behind an endpoint, to be evaluated."""
    body = fields(name=name, url=url, model=model, description=description, effort=effort, limit_field=limit_field)
    body |= fields(takes_temperature=temperature, parameters=_parameters(parameter), price_input=price_input)
    body |= fields(price_cached=price_cached, price_output=price_output, key=_key() if key else None)
    session.output.rows([session.api.post("/endpoints", body)], ENDPOINT_COLUMNS)


@endpoints.command("update", example="remote --effort high")
def update_endpoint(
    session: Session,
    name: str,
    url: Annotated[str | None, typer.Option(help="Base of the API: https://host/v1")] = None,
    effort: Effort = None,
    limit_field: LimitField = None,
    temperature: Temperature = None,
    parameter: Parameters = None,
    price_input: Price = None,
    price_cached: Price = None,
    price_output: Price = None,
    key: Key = False,
    no_key: Annotated[bool, typer.Option("--no-key", help="Delete its key.")] = False,
) -> None:
    """Change an endpoint; what is not named, and its model, stay."""
    if key and no_key:
        raise UsageError("--key and --no-key: choose one")
    found: dict[str, Any] = session.api.get("/endpoints/{name}", name=name)
    stays = {field: value for field, value in found.items() if field not in ("name", "model", "has_key")}
    changes = fields(url=url, effort=effort, limit_field=limit_field, takes_temperature=temperature)
    changes |= fields(parameters=_parameters(parameter), price_input=price_input, price_cached=price_cached)
    changes |= fields(price_output=price_output, key="" if no_key else _key() if key else None)
    session.output.rows([session.api.put("/endpoints/{name}", {**stays, **changes}, name=name)], ENDPOINT_COLUMNS)


def _parameters(words: list[str] | None) -> dict[str, Any] | None:
    return dict(assignment(word) for word in words) if words else None


def _key() -> str:
    found = secret("Key")
    if not found:
        raise UsageError("--key: standard input is empty; --no-key deletes the present key")
    return found


NOUNS = (policies, policy_imports, measurements, measurement_jobs, endpoints)
