"""Inspect's `.eval` log: rollouts as samples, so that its viewer and its scanners read them. Export only.

A zip of JSON: `header.json`, `summaries.json`, and one file a sample under `samples/`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from sandbox.formats.atif import OWN
from sandbox.formats.base import Losses
from sandbox.formats.messages import export as export_messages
from sandbox.formats.record import Record

LOG_VERSION = 2


def export(records: Iterable[Record], path: Path, *, suite: str, created: datetime) -> Losses:
    """Write the log of one evaluation; rollouts of one task become its epochs. Raises ValueError for no record."""
    losses, epochs = Losses(), dict[str, int]()
    summaries: list[dict[str, Any]] = []
    models: dict[str, None] = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        for record in records:
            epochs[record.task] = epoch = epochs.get(record.task, 0) + 1
            models.setdefault(record.model)
            sample = _sample(record, epoch, losses)
            log.writestr(f"samples/{record.task}_epoch_{epoch}.json", json.dumps(sample))
            kept = ("id", "epoch", "uuid", "input", "target", "scores", "metadata", "total_time")
            summaries.append({**{name: sample[name] for name in kept if name in sample}, "completed": True})
        if not summaries:
            raise ValueError("an evaluation without rollouts cannot be exported")
        head = _header(suite, created, epochs, tuple(models), summaries)
        log.writestr("_journal/start.json", json.dumps({name: head[name] for name in ("version", "eval", "plan")}))
        log.writestr("summaries.json", json.dumps(summaries))
        log.writestr("header.json", json.dumps(head))
    return losses


def _header(
    suite: str, created: datetime, epochs: dict[str, int], models: tuple[str, ...], summaries: list[dict[str, Any]]
) -> dict[str, Any]:
    scored = [s["scores"]["tests"]["value"] for s in summaries if s["scores"]]
    mean = sum(scored) / len(scored) if scored else 0.0
    return {
        "version": LOG_VERSION,
        "status": "success",
        "eval": {
            "created": created.isoformat(), "task": suite, "model": models[0],
            "dataset": {"name": suite, "samples": len(epochs), "sample_ids": list(epochs)},
            "config": {"epochs": max(epochs.values())},
            "metadata": {"models": list(models)},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(summaries), "completed_samples": len(summaries),
            "scores": [
                {"name": "tests", "scorer": "tests", "scored_samples": len(scored),
                 "unscored_samples": len(summaries) - len(scored), "params": {},
                 "metrics": {"accuracy": {"name": "accuracy", "value": mean, "params": {}}}}
            ],
        },
        "stats": {"started_at": created.isoformat(), "completed_at": created.isoformat(), "model_usage": {}},
    }  # fmt: skip


def _sample(record: Record, epoch: int, losses: Losses) -> dict[str, Any]:
    messages = [_message(message, record.model) for message in export_messages(record)[0]]
    read = sum(len(step.prompt_token_ids) for step in record.steps)
    written = sum(len(step.completion_token_ids) for step in record.steps)
    if written:
        losses.add("token ids and log-probabilities", "a sample holds messages; only counts of tokens are kept")
    last = next((m for m in reversed(messages) if m["role"] == "assistant"), None)
    choices = [{"message": last, "stop_reason": "stop"}] if last else []
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    scores = {}
    if record.reward is not None:
        scores["tests"] = {"value": record.reward, "answer": record.patch, "explanation": record.verdict}
    made: dict[str, Any] = {
        "id": record.task, "epoch": epoch, "uuid": record.id, "input": record.opening[-1].content if record.opening else "",
        "target": "", "messages": messages, "output": {"model": record.model, "choices": choices}, "scores": scores,
        "model_usage": {record.model: usage} if written else {}, "total_time": record.seconds,
        "metadata": {OWN: {"verdict": record.verdict, "stop_reason": record.stop_reason, **record.extra}},
    }  # fmt: skip
    if record.reward is None:
        made["error"] = {
            "message": record.verdict or "not graded", "traceback": "", "traceback_ansi": "",
        }  # fmt: skip
    return made


def _message(message: dict[str, Any], model: str) -> dict[str, Any]:
    if message["role"] != "assistant":
        made = dict(message)
        return made
    content: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        content.append({"type": "reasoning", "reasoning": message["reasoning_content"]})
    content.append({"type": "text", "text": message["content"]})
    calls = []
    for call in message.get("tool_calls", ()):
        text = call["function"]["arguments"]
        try:
            arguments, error = json.loads(text), None
        except (ValueError, RecursionError):
            arguments, error = None, f"not JSON: {text[:200]}"
        if not isinstance(arguments, dict):
            arguments, error = {}, error or f"not an object: {text[:200]}"
        one = {"id": call["id"], "function": call["function"]["name"], "arguments": arguments, "type": "function"}
        calls.append({**one, "parse_error": error} if error else one)
    return {
        "role": "assistant", "model": model, "content": content, **({"tool_calls": calls} if calls else {}),
    }  # fmt: skip
