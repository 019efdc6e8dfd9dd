"""ATIF v1.8, the trajectory format of Harbor: token ids, log-probabilities and the mark of copied context included."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from sandbox.formats.base import FormatRefused, Losses, json_object, newer
from sandbox.formats.record import Call, Opening, Record, Result, Step

VERSION = "ATIF-v1.8"
OWN = "opencomposer"
"""Key of `extra` under which we keep what the format has no field for."""


def export(record: Record) -> tuple[dict[str, Any], Losses]:
    """The document. Nothing is lost: what has no field of its own goes into `extra`."""
    steps: list[dict[str, Any]] = [{"source": one.role, "message": one.content} for one in record.opening]
    steps += [_step(one) for one in record.steps]
    rest = {
        "task": record.task, "verdict": record.verdict, "stop_reason": record.stop_reason, "patch": record.patch,
        "seconds": record.seconds, "reward": record.reward, "extra": record.extra,
    }  # fmt: skip
    done = sum(len(step.completion_token_ids) for step in record.steps)
    document = {
        "schema_version": VERSION,
        "trajectory_id": record.id,
        "session_id": record.id,
        "agent": {
            "name": record.agent, "version": record.agent_version, "model_name": record.model,
            **({"tool_definitions": list(record.tools)} if record.tools else {}),
        },
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(len(step.prompt_token_ids) for step in record.steps),
            "total_completion_tokens": done,
            "total_steps": len(steps),
        },
        "extra": {OWN: rest},
    }  # fmt: skip
    return document, Losses()


def _step(step: Step) -> dict[str, Any]:
    made: dict[str, Any] = {"source": "agent", "message": step.content, "llm_call_count": 1}
    if step.thinking:
        made["reasoning_content"] = step.thinking
    if step.excluded:
        made["is_copied_context"] = True
    if step.calls:
        made["tool_calls"] = [
            {"tool_call_id": c.id, "function_name": c.name, "arguments": _object(c.arguments),
             "extra": {OWN: {"arguments": c.arguments}}}
            for c in step.calls
        ]  # fmt: skip
    if step.results:
        made["observation"] = {
            "results": [
                {
                    "source_call_id": r.call_id,
                    "content": r.content,
                    **({"extra": {OWN: {"error": r.error}}} if r.error else {}),
                }
                for r in step.results
            ]
        }
    if step.completion_token_ids or step.prompt_token_ids:
        made["metrics"] = {
            "prompt_tokens": len(step.prompt_token_ids),
            "completion_tokens": len(step.completion_token_ids),
            "prompt_token_ids": list(step.prompt_token_ids),
            "completion_token_ids": list(step.completion_token_ids),
            **({"logprobs": list(step.logprobs)} if step.logprobs else {}),
        }
    if step.seconds:
        made["extra"] = {OWN: {"seconds": step.seconds}}
    return made


def _object(arguments: str) -> dict[str, Any]:
    """The arguments as an object; a call that does not parse has none, and keeps its text beside them."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def load(data: bytes | str) -> tuple[Record, Losses]:
    """Ours or another's document. Raises FormatRefused with the field."""
    document = json_object(data, "ATIF trajectory")
    version = str(document.get("schema_version", ""))
    if not version.startswith("ATIF-v1."):
        raise FormatRefused(f"schema_version is {version!r}, not one of ATIF-v1", remedy=f"Export it as {VERSION}")
    if newer(version, VERSION):
        raise FormatRefused(f"schema_version {version} is newer than {VERSION}, which this version reads")
    losses = Losses()
    for name in ("subagent_trajectories", "continued_trajectory_ref", "notes"):
        if document.get(name):
            losses.add(name, "a record has one thread of one agent")
    agent = _part(document, "agent", "the trajectory")
    own = (document.get("extra") or {}).get(OWN, {})
    opening: list[Opening] = []
    steps: list[Step] = []
    try:
        for number, step in enumerate(document.get("steps") or (), 1):
            if step.get("step_id") != number:
                raise FormatRefused(f"steps[{number - 1}].step_id is {step.get('step_id')!r}, not {number}")
            if step["source"] in ("system", "user"):
                if steps:
                    losses.add("steps", "a message of a user after the agent began is kept as context of the next step")
                opening.append(Opening(role=step["source"], content=_text(step["message"], losses)))
            else:
                steps.append(_read_step(step, losses))
        return Record(
            id=str(document.get("trajectory_id") or document.get("session_id") or "trajectory"),
            task=str(own.get("task", "")), model=str(agent.get("model_name") or ""), agent=str(agent.get("name")),
            agent_version=str(agent.get("version")), tools=tuple(agent.get("tool_definitions") or ()),
            opening=tuple(opening), steps=tuple(steps), reward=own.get("reward"), verdict=str(own.get("verdict", "")),
            stop_reason=str(own.get("stop_reason", "")), patch=str(own.get("patch", "")),
            seconds=float(own.get("seconds", 0.0)), extra=own.get("extra", {}),
        ), losses  # fmt: skip
    except (ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatRefused(f"ATIF trajectory, step {len(opening) + len(steps) + 1}: {_first(error)}") from error


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, found['loc']))}: {found['msg']}"
    return f"{type(error).__name__}: {error}"


def _part(document: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    value = document.get(name)
    if not isinstance(value, dict):
        raise FormatRefused(f"{name} of {where} is {type(value).__name__}, not an object")
    return value


def _text(message: Any, losses: Losses) -> str:
    if isinstance(message, str):
        return message
    if any(part.get("type") != "text" for part in message):
        losses.add("message", "parts that are not text are left out")
    return "".join(part.get("text", "") for part in message if part.get("type") == "text")


def _sampled(call: dict[str, Any]) -> str:
    """The arguments as they were sampled; of others' trajectories, which do not tell, serialised anew."""
    own = ((call.get("extra") or {}).get(OWN) or {}).get("arguments")
    return own if isinstance(own, str) else json.dumps(call["arguments"])


def _read_step(step: dict[str, Any], losses: Losses) -> Step:
    metrics = step.get("metrics") or {}
    for name in ("cached_tokens", "cost_usd"):
        if metrics.get(name) is not None:
            losses.add(f"metrics.{name}", "a record has no place for it")
    calls = [
        Call(
            id=call["tool_call_id"], name=call["function_name"],
            arguments=_sampled(call),
        )
        for call in step.get("tool_calls") or ()
    ]  # fmt: skip
    results = []
    for result in (step.get("observation") or {}).get("results", ()):
        call_id = result.get("source_call_id") or (calls[0].id if calls else None)
        if call_id is None:
            losses.add("observation", "one that belongs to no call is left out")
            continue
        error = ((result.get("extra") or {}).get(OWN) or {}).get("error", "")
        results.append(Result(call_id=call_id, content=_text(result.get("content") or "", losses), error=error))
    return Step(
        content=_text(step["message"], losses), thinking=step.get("reasoning_content") or "", calls=tuple(calls),
        results=tuple(results), prompt_token_ids=tuple(metrics.get("prompt_token_ids") or ()),
        completion_token_ids=tuple(metrics.get("completion_token_ids") or ()),
        logprobs=tuple(metrics.get("logprobs") or ()), excluded=bool(step.get("is_copied_context")),
        seconds=float(((step.get("extra") or {}).get(OWN) or {}).get("seconds", 0.0)),
    )  # fmt: skip
