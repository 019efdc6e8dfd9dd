"""OpenAI chat messages, and mini-swe-agent's trajectories, which are such messages with a head.

Arguments of calls stay the string that was sampled. Tokens and log-probabilities have no place in these formats.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from sandbox.formats.base import FormatRefused, Losses, json_object, newer, read_json
from sandbox.formats.record import Call, Opening, Record, Result, Step

MINI = "mini-swe-agent-1.1"


def export(record: Record) -> tuple[list[dict[str, Any]], Losses]:
    losses = Losses()
    messages: list[dict[str, Any]] = [{"role": one.role, "content": one.content} for one in record.opening]
    for step in record.steps:
        message: dict[str, Any] = {"role": "assistant", "content": step.content}
        if step.thinking:
            message["reasoning_content"] = step.thinking
        if step.calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in step.calls
            ]
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": r.call_id, "content": r.content} for r in step.results]
        if step.completion_token_ids:
            losses.add("token ids and log-probabilities", "messages are text")
        if step.excluded:
            losses.add("excluded", "a message does not say that it is not to be trained on")
        if any(result.error for result in step.results):
            losses.add("error", "the kind of a failed call is not told, only its text")
        if step.seconds:
            losses.add("seconds", "messages carry no times")
    for name in ("reward", "verdict", "stop_reason", "patch", "tools", "extra"):
        if getattr(record, name):
            losses.add(name, "messages alone have no place for it")
    return messages, losses


def load(data: bytes | str, *, id: str = "messages", task: str = "", model: str = "") -> tuple[Record, Losses]:
    """A list of messages as a record. Raises FormatRefused with the number of the message."""
    value = read_json(data, "messages")
    if not isinstance(value, list):
        raise FormatRefused(f"messages are a {type(value).__name__}, not a list")
    return from_messages(value, id=id, task=task, model=model)


def from_messages(value: list[Any], *, id: str, task: str, model: str, **more: Any) -> tuple[Record, Losses]:
    losses = Losses()
    opening: list[Opening] = []
    steps: list[dict[str, Any]] = []
    for number, message in enumerate(value):
        try:
            _take(message, opening, steps, losses)
        except (KeyError, TypeError, AttributeError, ValidationError) as error:
            raise FormatRefused(f"message {number}: {type(error).__name__}: {error}") from error
    try:
        return Record(
            id=id, task=task, model=model, opening=tuple(opening), steps=tuple(Step(**s) for s in steps), **more
        ), losses
    except ValidationError as error:
        raise FormatRefused(f"messages: {error.errors(include_url=False)[0]['msg']}") from error


def _take(message: Any, opening: list[Opening], steps: list[dict[str, Any]], losses: Losses) -> None:
    role, content = message["role"], _text(message.get("content"), losses)
    if role in ("system", "developer", "user"):
        if not steps:
            opening.append(Opening(role="user" if role == "user" else "system", content=content))
        elif steps[-1]["calls"] and not steps[-1]["results"]:
            call = steps[-1]["calls"][0]
            steps[-1]["results"] = (Result(call_id=call.id, content=content),)
        else:
            # Agents without tool calls read what their commands printed as messages of the user.
            call = Call(id=f"text-{len(steps)}", name="message", arguments="{}")
            steps[-1]["calls"] = (*steps[-1]["calls"], call)
            steps[-1]["results"] = (*steps[-1]["results"], Result(call_id=call.id, content=content))
            losses.add("messages of the user", "one after the agent began is kept as the result of a call `message`")
    elif role == "assistant":
        calls = tuple(
            Call(id=c["id"], name=c["function"]["name"], arguments=c["function"]["arguments"])
            for c in message.get("tool_calls") or ()
        )
        thinking = message.get("reasoning_content") or ""
        steps.append({"content": content, "thinking": thinking, "calls": calls, "results": ()})
    elif role == "tool":
        if not steps:
            raise KeyError("a tool's message before any of the assistant")
        result = Result(call_id=message["tool_call_id"], content=content)
        steps[-1]["results"] = (*steps[-1]["results"], result)
    else:
        raise KeyError(f"unknown role {role!r}")


def _text(content: Any, losses: Losses) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if any(part.get("type") not in ("text", "input_text", "output_text") for part in content):
        losses.add("content", "parts that are not text are left out")
    return "".join(part.get("text", "") for part in content)


def export_mini(record: Record) -> tuple[dict[str, Any], Losses]:
    """mini-swe-agent's trajectory; its head has places for how the run ended and for what it cost."""
    messages, losses = export(record)
    for name in ("stop_reason", "patch", "verdict", "reward", "extra", "tools"):
        losses.found.pop(name, None)
    info = {
        "model_stats": {"instance_cost": 0.0, "api_calls": len(record.steps)},
        "config": {
            "model": {"model_name": record.model},
            "agent": {"name": record.agent, "version": record.agent_version, "tools": list(record.tools)},
            "opencomposer": {"task": record.task, "reward": record.reward, "verdict": record.verdict,
                             "seconds": record.seconds, "extra": record.extra},
        },
        "exit_status": record.stop_reason,
        "submission": record.patch,
        "mini_version": "",
    }  # fmt: skip
    return {"info": info, "messages": messages, "trajectory_format": MINI, "instance_id": record.id}, losses


def load_mini(data: bytes | str) -> tuple[Record, Losses]:
    """A trajectory of mini-swe-agent. Raises FormatRefused."""
    document = json_object(data, "mini-swe-agent trajectory")
    version = str(document.get("trajectory_format", ""))
    if not version.startswith("mini-swe-agent-"):
        raise FormatRefused(f"trajectory_format is {version!r}, not mini-swe-agent's", remedy=f"Known is {MINI}")
    if newer(version.removeprefix("mini-swe-agent-"), MINI.removeprefix("mini-swe-agent-")):
        raise FormatRefused(f"trajectory_format {version} is newer than {MINI}, which this version reads")
    info = document.get("info") or {}
    config = info.get("config") or {}
    own, agent = config.get("opencomposer") or {}, config.get("agent") or {}
    messages = document.get("messages")
    if not isinstance(messages, list):
        raise FormatRefused(f"messages are a {type(messages).__name__}, not a list")
    record, losses = from_messages(
        messages, id=str(document.get("instance_id") or "trajectory"), task=str(own.get("task", "")),
        model=str((config.get("model") or {}).get("model_name") or ""), agent=str(agent.get("name") or "mini-swe-agent"),
        agent_version=str(agent.get("version") or info.get("mini_version") or ""),
        tools=tuple(agent.get("tools") or ()), stop_reason=str(info.get("exit_status") or ""),
        patch=str(info.get("submission") or ""), reward=own.get("reward"), verdict=str(own.get("verdict", "")),
        seconds=float(own.get("seconds", 0.0)), extra=own.get("extra", {}),
    )  # fmt: skip
    if (info.get("model_stats") or {}).get("instance_cost"):
        losses.add("instance_cost", "a record has no place for what an endpoint charged")
    return record, losses
