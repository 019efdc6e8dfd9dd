"""Between messages and tokens: prompts from the policy's own chat template, tool calls from its sampled tokens.

Sampled tokens are kept as they are. What follows them (tool outputs and the next generation prompt) is found
by rendering a small conversation with the template and taking what comes after the assistant's turn, so any
template serves. Text from outside (issues, tool outputs) can never become a control token.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from sandbox.harness.types import ToolCall, ToolResult
from sandbox.storable import parse_json

Message = Mapping[str, Any]

THINK, THINK_END = "<think>", "</think>"
PROBE_USER = "probe-question"
PROBE_ANSWER = "probe-answer"
SAID = ("content", "reasoning_content")
TEMPLATE_FAILS = (TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""What a template raises where it does not expect a conversation: its expressions are Python's."""
ESCAPES = ("\ue000", "\ue001")
"""Private-use characters that stand around a control token's text while the template renders it."""


PIECE = 1 << 16
"""Characters that are tokenised at once where a bound holds; small enough to stop soon after it is passed."""
LONG = 1 << 13
"""Characters from which a text is tokenised without the interpreter's lock, so that other threads go on."""
PIECE_SLACK = 8
"""Tokens by which a cut in a text may raise its count. Cuts are made before white space, where most tokenizers cut, too."""


class PromptTooLong(ValueError):
    """A prompt has more tokens than it may have. `tokens` is a lower bound of its count."""

    def __init__(self, tokens: int, max_tokens: int) -> None:
        super().__init__(f"the prompt has at least {tokens} tokens; at most {max_tokens} fit")
        self.tokens, self.max_tokens = tokens, max_tokens


class ChatTemplateError(ValueError):
    """The policy's chat template cannot drive an episode. The message says what is missing and the remedy."""


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """One policy turn as read back from its tokens. `error` says why a call that was meant does not parse."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    error: str | None = None
    thinking_tokens: int = 0
    """Tokens of the turn's thinking block, its marks included."""


class CallSyntax(Protocol):
    """How a family of models writes tool calls in its text."""

    @property
    def thinks(self) -> bool:
        """Whether a turn may begin with a thinking block."""
        ...

    def extract(self, text: str) -> list[str] | None:
        """The JSON text of each call; an empty list when the turn has none, None when a call is cut off."""
        ...

    def write(self, calls: Sequence[ToolCall]) -> str: ...


def call_json(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


class BareCalls:
    """The turn is one call object a line, nothing else: the toy policy's syntax."""

    thinks = False

    def extract(self, text: str) -> list[str] | None:
        body = text.strip()
        if not body.startswith("{"):
            return []
        decoder, at = json.JSONDecoder(), 0
        found: list[str] = []
        while at < len(body):
            try:
                _, end = decoder.raw_decode(body, at)
            except ValueError:
                return None
            except RecursionError:
                return [*found, body[at:]]  # JSON, nested too deeply to be read: refused as such
            found.append(body[at:end])
            at = end + len(body[end:]) - len(body[end:].lstrip())
        return found

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(call_json(call) for call in calls)


class HermesCalls:
    """`<tool_call>` blocks within free text, as Qwen and Hermes models write them. Thinking is not searched."""

    thinks = True
    BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)

    def extract(self, text: str) -> list[str] | None:
        said = text.rpartition(THINK_END)[2]
        if "<tool_call>" in self.BLOCK.sub("", said):
            return None
        return [block.strip() for block in self.BLOCK.findall(said)]

    def write(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(f"<tool_call>\n{call_json(call)}\n</tool_call>" for call in calls)


def read_calls(blocks: Sequence[str]) -> tuple[ToolCall, ...]:
    """Validate call objects. Raises ValueError that names the first defect: malformed or too deeply nested JSON, too."""
    calls = []
    for index, block in enumerate(blocks):
        value = parse_json(block)
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ValueError('a call is {"name": string, "arguments": object}')
        arguments = value.get("arguments", {})
        if not isinstance(arguments, dict):
            raise ValueError(f"arguments of {value['name']!r} must be an object, found {type(arguments).__name__}")
        calls.append(ToolCall(id=f"call_{index}", name=value["name"], arguments=arguments))
    return tuple(calls)


class ChatRenderer:
    """Renders and reads episodes for one tokenizer and its chat template. Stateless: share it freely."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            raise ChatTemplateError("the policy has no chat template; add chat_template.jinja to its folder")
        self.tokenizer = tokenizer
        self.syntax: CallSyntax = HermesCalls() if "<tool_call>" in str(tokenizer.chat_template) else BareCalls()
        added = tokenizer.get_added_vocab()
        control = {text for text in added if tokenizer.added_tokens_decoder[added[text]].special}
        control |= {text for text in ("<tool_call>", "</tool_call>") if text in added}
        self._controls = sorted(control, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, self._controls)) or r"(?!)")
        self._turn_end = self._find_turn_end()
        stop = {self._token_id(self._turn_end)}
        if tokenizer.eos_token_id is not None:
            stop.add(int(tokenizer.eos_token_id))
        self.turn_end_id = self._token_id(self._turn_end)
        self.stop_ids: list[int] = sorted(stop)
        self._opens_thinking = self._render([{"role": "user", "content": PROBE_USER}]).rstrip().endswith(THINK)

    def start(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, max_tokens: int | None = None
    ) -> list[int]:
        """The opening prompt: messages and tool schemas as the template shows them, and the generation prompt.

        Raises PromptTooLong soon after more than `max_tokens` tokens are counted, however long the rest is.
        """
        return self._encode(self._render(messages, tools), max_tokens)

    def conversation(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """A finished conversation at once, without a generation prompt."""
        return self._encode(self._render(messages, tools, prompt=False))

    def observe(self, results: Sequence[ToolResult], ask: str = "", *, max_tokens: int | None = None) -> list[int]:
        """What follows the policy's turn-end token: the tool outputs, a message of the user if one is to `ask` for
        something, and the next generation prompt."""
        tool_messages = [{"role": "tool", "content": r.output, "tool_call_id": r.call_id} for r in results]
        asked = [{"role": "user", "content": ask}] if ask else []
        return self.follow([*tool_messages, *asked], max_tokens=max_tokens)

    def follow(self, messages: Sequence[Message], *, max_tokens: int | None = None) -> list[int]:
        """What follows the policy's turn-end token when these messages come next, and the next generation prompt.

        Raises PromptTooLong, as `start`.
        """
        shown = self._render([*self._probe(), *messages])
        _, found, rest = shown.partition(PROBE_ANSWER)
        _, ended, bridge = rest.partition(self._turn_end)
        if not found or not ended:
            raise ChatTemplateError(
                "the chat template drops the assistant turn before a tool result; use one that keeps it"
            )
        return self._encode(bridge, max_tokens)

    def turn(self, calls: Sequence[ToolCall], text: str = "") -> list[int]:
        """A scripted turn as the policy would have sampled it, turn-end token included (for expert episodes)."""
        return [*self._plain(text + self.syntax.write(calls)), self.turn_end_id]

    def written(
        self, before: Sequence[Message], message: Message, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """The assistant's `message` after `before` as the template writes it, turn-end token included.

        Raises ChatTemplateError: the template changes what stands before it, or drops the turn.
        """
        prompt, shown = self._render(before, tools), self._render([*before, message], tools, prompt=False)
        text, ended, _ = shown[len(prompt) :].partition(self._turn_end)
        if not shown.startswith(prompt) or not ended:
            raise ChatTemplateError(
                "the chat template does not write an assistant's turn where its generation prompt ends; use one that does"
            )
        return [*self._encode(text), self.turn_end_id]

    def parse(self, token_ids: Sequence[int]) -> ParsedTurn:
        """Read a sampled turn. Never raises: what does not parse is the policy's error."""
        kept = list(token_ids)
        while kept and kept[-1] in self.stop_ids:
            kept.pop()
        text = self._text(kept)
        thinking = self._thinking_tokens(kept, text)
        blocks = self.syntax.extract(text)
        if blocks is None:
            return ParsedTurn(text, error="the tool call is not complete JSON", thinking_tokens=thinking)
        try:
            return ParsedTurn(text, calls=read_calls(blocks), thinking_tokens=thinking)
        except ValueError as error:
            return ParsedTurn(text, error=f"the tool call does not parse: {error}"[:300], thinking_tokens=thinking)

    def _thinking_tokens(self, kept: Sequence[int], text: str) -> int:
        """How many tokens of a turn are its thinking: all up to the last end mark (templates may open the block in the
        prompt), all of the turn while the block is open, else none."""
        if not self.syntax.thinks:
            return 0
        ends = text.count(THINK_END)
        if not ends:
            return len(kept) if self._opens_thinking or text.lstrip().startswith(THINK) else 0
        # The tokens that are needed to spell all end marks: the marks need not be single tokens.
        return bisect.bisect_left(range(len(kept)), ends, key=lambda n: self._text(kept[:n]).count(THINK_END))

    # -- rendering ------------------------------------------------------------------------------------

    @staticmethod
    def _probe() -> list[dict[str, Any]]:
        return [{"role": "user", "content": PROBE_USER}, {"role": "assistant", "content": PROBE_ANSWER}]

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, prompt: bool = True
    ) -> str:
        """Raises ChatTemplateError in the template's own words."""
        safe = [self._safe(message) for message in messages]
        try:
            text = self.tokenizer.apply_chat_template(
                safe, tools=[dict(tool) for tool in tools] or None, tokenize=False, add_generation_prompt=prompt
            )
        except TEMPLATE_FAILS as error:
            raise ChatTemplateError(
                f"the chat template refuses a conversation: {error}; use one that shows it"
            ) from error
        return str(text)

    def _find_turn_end(self) -> str:
        """The control token that the template writes after an assistant turn."""
        shown = self._render(self._probe(), prompt=False)
        match = (
            self._control.search(shown, shown.find(PROBE_ANSWER) + len(PROBE_ANSWER)) if PROBE_ANSWER in shown else None
        )
        if match is None:
            raise ChatTemplateError(
                "the chat template ends an assistant turn with no special token; add one (for example <|im_end|>)"
            )
        return match.group()

    def _text(self, token_ids: Sequence[int]) -> str:
        return str(
            self.tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def _token_id(self, text: str) -> int:
        return int(self.tokenizer.get_added_vocab()[text])

    def _safe(self, message: Message) -> dict[str, Any]:
        """Without control tokens in what is said, thought or handed to a tool."""
        safe = {n: self._mask(v) if n in SAID and isinstance(v, str) else v for n, v in message.items()}
        if calls := message.get("tool_calls"):
            safe["tool_calls"] = [self._mask_all(call) for call in calls]
        return safe

    def _mask_all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._mask(value)
        if isinstance(value, Mapping):
            return {self._mask(str(key)): self._mask_all(item) for key, item in value.items()}
        return [self._mask_all(item) for item in value] if isinstance(value, list | tuple) else value

    def _mask(self, content: str) -> str:
        opening, closing = ESCAPES
        plain = content.replace(opening, "").replace(closing, "")
        if not any(control in plain for control in self._controls):  # far faster than the expression
            return plain
        return self._control.sub(lambda match: opening + match.group().encode().hex() + closing, plain)

    def _encode(self, text: str, max_tokens: int | None = None) -> list[int]:
        """Token ids of a rendering; masked control text comes back as ordinary characters.

        A control token's text cut after its first character matches no control token. Raises PromptTooLong.
        """
        opening, closing = ESCAPES
        ids: list[int] = []
        for position, part in enumerate(re.split(f"{opening}([0-9a-f]*){closing}", text)):
            if position % 2:
                literal = bytes.fromhex(part).decode()
                ids += self._plain(literal[0]) + self._plain(literal[1:])
            elif part:
                if max_tokens is not None and len(part) > PIECE:
                    self._check(part, before=len(ids), max_tokens=max_tokens)
                ids += self._plain(part)
            if max_tokens is not None and len(ids) > max_tokens:
                raise PromptTooLong(len(ids), max_tokens)
        return ids

    def _check(self, text: str, *, before: int, max_tokens: int) -> None:
        """Counts a long text in pieces. Raises PromptTooLong at the piece that passes `max_tokens`."""
        count, start = before, 0
        while start < len(text):
            end = start + PIECE
            if end < len(text):
                end = max(
                    text.rfind(" ", start + PIECE // 2, end),
                    text.rfind("\n", start + PIECE // 2, end),
                    end - PIECE // 2,
                )
            count += len(self._plain(text[start:end])) - PIECE_SLACK
            start = end
            if count > max_tokens:
                raise PromptTooLong(count, max_tokens)

    def _plain(self, text: str) -> list[int]:
        """Without the wrapper's preparations for batches where there is the library below it: a request waits for these."""
        library = getattr(self.tokenizer, "backend_tokenizer", None)
        if library is not None and not (library.truncation or library.padding or library.encode_special_tokens):
            if len(text) > LONG:
                return list(library.encode_batch_fast([text], add_special_tokens=False)[0].ids)
            return list(library.encode(text, add_special_tokens=False).ids)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


__all__ = [
    "CallSyntax",
    "ChatRenderer",
    "ChatTemplateError",
    "Message",
    "ParsedTurn",
    "PromptTooLong",
    "call_json",
    "read_calls",
]
