"""Converts a conversation to the tokens that a policy with this template would have read and sampled. Only the
assistant's tokens are trained on.

Three properties are verified. The assistant's tokens parse back to the intended calls. The concatenated turns equal the
whole conversation rendered at once, where the model's template keeps earlier turns as they were. No outside text is a
control token. Windows that were sampled here with the same tokenizer and template need no verification: their tokens
are used unchanged.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox.harness.types import ToolCall
from trainer.learning.supervised import Example
from trainer.policy import Policy
from trainer.policy.rendering.chat import ChatRenderer, ChatTemplateError, ParsedTurn, structured
from trainer.policy.round_trip import TemplateNotExact, not_exact
from trainer.sft.conversations.conversation import Conversation, Message
from trainer.sft.conversations.fingerprint import fingerprint

TOO_LONG, NOT_EXACT, OTHER_TOKENS = "too long", "not token-exact", "summaries of another tokenizer"
SHOWN = 5


def as_message(message: Message) -> dict[str, Any]:
    """The message in the form that templates read."""
    shown: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.thinking:
        shown["reasoning_content"] = message.thinking
    if message.calls:
        shown["tool_calls"] = structured(message.calls)
    if message.role == "tool":
        shown["tool_call_id"] = message.call_id
    return shown


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens with a flag for each trained one, stored compactly: a dataset has many."""

    ids: array[int]
    learned: bytes

    @classmethod
    def of(cls, ids: Sequence[int], learned: Sequence[int]) -> Tokens:
        return cls(array("I", ids), bytes(bool(mark) for mark in learned))

    def example(self, observation_weight: float) -> Example:
        return Example(self.ids.tolist(), [1.0 if mark else observation_weight for mark in self.learned])


def rendered(renderer: ChatRenderer, conversation: Conversation) -> Tokens:
    """Render up to the last trained message. Raises TemplateNotExact naming template and place."""
    name = str(renderer.tokenizer.name_or_path) or type(renderer.tokenizer).__name__
    where = f"{conversation.source}, {conversation.place}"
    last = max(index for index, message in enumerate(conversation.messages) if message.trained)
    messages = conversation.messages[: last + 1]
    shown = [as_message(message) for message in messages]
    try:
        ids, learned = _turns(renderer, messages, shown, conversation.tools)
        whole = renderer.conversation(shown, conversation.tools)
    except ChatTemplateError as error:
        raise TemplateNotExact(f"the chat template of {name} refuses {where}: {error}") from error
    if renderer.prefix_stable and ids != whole[: len(ids)]:
        raise not_exact(renderer, ids, whole, of=where, name=name)
    return Tokens.of(ids, learned)


def _turns(
    renderer: ChatRenderer,
    messages: Sequence[Message],
    shown: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]],
) -> tuple[list[int], list[int]]:
    """Raises ChatTemplateError."""
    ids: list[int] = []
    learned: list[int] = []
    said: list[int] = []
    after = 0
    """First message after the assistant's last turn."""
    for index, message in enumerate(messages):
        if message.role != "assistant":
            continue
        between = shown[after:index]
        read = (
            renderer.start(between, tools) if not ids else renderer.follow(between, said=said, before=ids[: -len(said)])
        )
        said = renderer.written(shown[:index], shown[index], tools)
        if message.trained:
            _read_back(renderer.parse(said, tools=tools, prompt=read), message.calls, index)
        ids += read + said
        learned += [0] * len(read) + [int(message.trained)] * len(said)
        after = index + 1
    return ids, learned


def _read_back(read: ParsedTurn, calls: Sequence[ToolCall], index: int) -> None:
    meant, got = ([(call.name, call.arguments) for call in some] for some in (calls, read.calls))
    if read.error or meant != got:
        raise ChatTemplateError(
            f"it loses calls: message {index} was {meant}, read back {read.error or got}; "
            "use a template whose call syntax the renderer writes and reads"
        )


@dataclass(slots=True)
class Streams:
    """Training and evaluation data of a stage, and what it left out."""

    train: list[Tokens] = field(default_factory=list)
    held_out: list[Tokens] = field(default_factory=list)
    kept: int = 0
    """Number of conversations kept."""
    as_sampled: int = 0
    """Kept conversations whose recorded tokens are used unchanged."""
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Reason → the first few, by name."""

    @property
    def learned_tokens(self) -> int:
        return sum(sum(tokens.learned) for tokens in self.train)

    def drop(self, reason: str, detail: str) -> None:
        self.dropped[reason] += 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < SHOWN:
            shown.append(detail)


def streams(policy: Policy, conversations: Sequence[Conversation], *, max_tokens: int, max_held_out: int) -> Streams:
    """All conversations that fit, a tenth of them (at most `max_held_out`) held out by task.

    Raises TemplateNotExact when none round-trips.
    """
    found, own = Streams(), fingerprint(policy.dir)
    kept: list[tuple[str, list[Tokens]]] = []
    failed: TemplateNotExact | None = None
    for conversation in conversations:
        where = f"{conversation.source}, {conversation.place}"
        sampled = bool(conversation.windows) and conversation.tokenizer == own
        if sampled:
            made = [Tokens.of(window.tokens, window.loss_mask) for window in conversation.windows]
        elif not conversation.whole:
            found.drop(OTHER_TOKENS, where)
            continue
        else:
            try:
                made = [rendered(policy.renderer, conversation)]
            except TemplateNotExact as error:
                failed = failed or error
                found.drop(NOT_EXACT, str(error))
                continue
        if longest := max((len(one.ids) for one in made if len(one.ids) > max_tokens), default=0):
            found.drop(TOO_LONG, f"{where}: {longest} tokens")
            continue
        found.as_sampled += sampled
        kept.append((conversation.task or conversation.key, [one for one in made if any(one.learned)]))
    if failed is not None and not kept:
        raise failed
    found.kept = len(kept)
    _hold_out(found, kept, max_held_out)
    return found


def _hold_out(found: Streams, kept: Sequence[tuple[str, list[Tokens]]], max_held_out: int) -> None:
    """Hold out whole tasks, chosen by a hash of their names, so that no task is on both sides; never more than half."""
    by_task: dict[str, list[list[Tokens]]] = {}
    for task, made in kept:
        by_task.setdefault(task, []).append(made)
    wanted, held = min(max_held_out, len(kept) // 10), 0
    for task in sorted(by_task, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        some = by_task[task]
        is_held = held < wanted and held + len(some) <= len(kept) // 2
        held += len(some) * is_held
        for made in some:
            (found.held_out if is_held else found.train).extend(made)


def endless(tokens: Sequence[Tokens], *, seed: int, observation_weight: float) -> Iterator[Example]:
    """Endless passes over all streams, in a new seeded order each pass."""
    rng = random.Random(f"sft:{seed}")
    while True:
        for one in rng.sample(tokens, len(tokens)):
            yield one.example(observation_weight)
