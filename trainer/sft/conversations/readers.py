"""Reading conversations: OpenAI-style messages in JSONL, JSON and Parquet, ATIF trajectories, and folders of these.

A row that is no conversation is told and left out; a file that cannot be read at all is refused whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sandbox.formats import atif
from sandbox.formats.base import FormatRefused
from sandbox.formats.record import Step
from sandbox.harness.types import ToolCall
from trainer.midtrain.corpus.readers import SourceUnreadable
from trainer.sft.conversations.conversation import Conversation, Message, Unfit

SUFFIXES = (".jsonl", ".json", ".parquet")
MAX_ROW = 16 << 20
"""Characters of one conversation."""
ROLES = {"developer": "system", "function": "tool", "human": "user"}
"""Other words for the same role."""
Read = Conversation | Unfit


def files_of(path: Path) -> list[Path]:
    """The files of one source in a fixed order; links are not followed. Raises SourceUnreadable."""
    if path.is_file() and path.suffix in SUFFIXES:
        return [path]
    if path.is_dir():
        found = [
            Path(folder) / name
            for folder, _, names in sorted(os.walk(path))
            for name in sorted(names)
            if Path(name).suffix in SUFFIXES and not (Path(folder) / name).is_symlink()
        ]
        if found:
            return found
    raise SourceUnreadable(f"{path.name} is no {', '.join(SUFFIXES)} file and no folder with such; check the path")


def read_file(file: Path, name: str) -> Iterator[Read]:
    """Conversations of one file in its order; `name` is what they are told by. Raises SourceUnreadable."""
    return {".parquet": _parquet, ".jsonl": _jsonl, ".json": _json}[file.suffix](file, name)


def digest_of(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _jsonl(file: Path, name: str) -> Iterator[Read]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield from _parsed(line, name, f"line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnreadable(f"{name} cannot be read: {error}; save it as UTF-8") from error


def _json(file: Path, name: str) -> Iterator[Read]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnreadable(f"{name} cannot be read: {error}; save it as UTF-8") from error
    yield from _parsed(text, name, "document")


def _parsed(text: str, source: str, place: str) -> Iterator[Read]:
    if len(text) > MAX_ROW:
        yield Unfit(source=source, place=place, reason="too large", detail=f"{len(text)} characters")
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield Unfit(source=source, place=place, reason="not JSON", detail=str(error)[:200])
        return
    yield conversation_of(value, source=source, place=place)


def _parquet(file: Path, name: str) -> Iterator[Read]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise SourceUnreadable(f"{name}: reading Parquet needs the extra `parquet` (pyarrow); install it") from error
    try:
        with ParquetFile(file) as table:
            number = 0
            for batch in table.iter_batches(batch_size=64):
                for row in batch.to_pylist():
                    number += 1
                    yield conversation_of(_plain(row), source=name, place=f"row {number}")
    except (ArrowException, OSError) as error:
        raise SourceUnreadable(f"{name} is not a readable Parquet file: {error}") from error


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row without the empty members that a column of structs gives to all, and with what is JSON text parsed."""
    kept = _without_nothing(row)
    for name in ("messages", "tools", "steps", "agent", "extra"):
        if isinstance(kept.get(name), str):
            try:
                kept[name] = json.loads(kept[name])
            except (ValueError, RecursionError):
                continue  # told by name when it is looked at
    return kept


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(item) for key, item in value.items() if item is not None}
    return [_without_nothing(item) for item in value] if isinstance(value, list) else value


def conversation_of(value: Any, *, source: str, place: str) -> Read:
    """A row in whichever of the formats: ATIF has `schema_version`, the others are messages or hold them."""
    try:
        if isinstance(value, dict) and "schema_version" in value:
            return _atif(value, source, place)
        row = {"messages": value} if isinstance(value, list) else value
        if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
            raise ValueError("no list under `messages`, and no ATIF trajectory")
        return Conversation(
            source=source,
            place=place,
            messages=tuple(_message(one) for one in row["messages"]),
            tools=tuple(row.get("tools") or ()),
            task=str(row.get("task") or ""),
        )
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, found["loc"]))
        detail = f"{where + ': ' if where else ''}{found['msg'].removeprefix('Value error, ')}"
    except (FormatRefused, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        detail = f"{'no ' if isinstance(error, KeyError) else ''}{error}"
    return Unfit(source=source, place=place, reason="no conversation", detail=detail[:300])


def _message(one: Any) -> Message:
    if not isinstance(one, dict):
        raise ValueError(f"a message is a {type(one).__name__}, not an object")
    role: Any = ROLES.get(one["role"], one["role"])  # whether it is one of ours, the model says
    thinking = one.get("reasoning_content") or one.get("reasoning") or one.get("thinking") or ""
    train = one.get("train", bool(one.get("weight", 1)))
    if not isinstance(train, bool):
        raise ValueError(f"train is {train!r}, not true or false")
    return Message(
        role=role,
        content=_text(one.get("content")),
        thinking=thinking,
        calls=tuple(_call(index, call) for index, call in enumerate(one.get("tool_calls") or ())),
        call_id=str(one.get("tool_call_id") or ""),
        train=train,
    )


def _call(index: int, call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    return _tool_call(call.get("id") or f"call_{index}", function["name"], function.get("arguments") or "{}")


def _tool_call(id: str, name: str, arguments: Any) -> ToolCall:
    """Raises ValueError."""
    value = json.loads(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(value, dict):
        raise ValueError(f"arguments of {name!r} are a {type(value).__name__}, not an object")
    return ToolCall(id=str(id), name=name, arguments=value)


def said(text: str, calls: tuple[ToolCall, ...], *, thinking: str = "", train: bool = True) -> Message:
    """A message of the assistant from `text` as it was sampled: without the calls and the thinking that stand in it."""
    # Only here: the package brings torch, which pages that name datasets have no use for.
    from trainer.policy.rendering.chat import THINK, THINK_END, read_calls
    from trainer.policy.rendering.reading import HermesText, hermes_blocks
    from trainer.policy.rendering.toy import extract

    meant = [(call.name, call.arguments) for call in calls]
    for syntax in (hermes_blocks, extract) if calls else ():
        blocks = syntax(text)
        try:
            found = [(call.name, call.arguments) for call in read_calls(blocks or ())]
        except (ValueError, RecursionError):
            continue
        if found == meant:
            text = HermesText.BLOCK.sub("", text).rstrip() if syntax is hermes_blocks else ""
            break
    if not thinking and THINK_END in text:
        thought, _, text = text.partition(THINK_END)
        thinking, text = thought.strip().removeprefix(THINK).strip("\n"), text.lstrip("\n")
    return Message(role="assistant", content=text, thinking=thinking, calls=calls, train=train)


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if odd := next((part.get("type") for part in content if part.get("type") not in ("text", "input_text")), None):
        raise ValueError(f"a part of the content is of type {odd!r}; only text is trained on")
    return "".join(part.get("text", "") for part in content)


def _atif(document: dict[str, Any], source: str, place: str) -> Conversation:
    record, _ = atif.load(json.dumps(document))
    opening, steps = iter(record.opening), iter(record.steps)
    messages: list[Message] = []
    # A record keeps a user's later messages among the first ones: here they stay where they were said.
    for step in document["steps"]:
        if step["source"] in ("system", "user"):
            said = next(opening)
            messages.append(Message(role="system" if said.role == "system" else "user", content=said.content))
        else:
            messages += _step(next(steps))
    return Conversation(
        source=source,
        place=place,
        messages=tuple(messages),
        tools=record.tools,
        task=record.task,
        bundle_hash=str(record.extra.get("bundle_hash", "")),
    )


def _step(step: Step) -> Iterator[Message]:
    calls = tuple(_tool_call(call.id, call.name, call.arguments) for call in step.calls)
    failed = any(result.error for result in step.results)
    yield said(step.content, calls, thinking=step.thinking, train=not step.excluded and not failed)
    for result in step.results:
        yield Message(role="tool", content=result.content, call_id=result.call_id)
