"""vLLM's answers token by token, so that what was sampled by a request's deadline is kept.

`POST /inference/v1/generate` with `stream` sends server-sent events: each has the new tokens of the choice with their
log-probabilities, the last one the reason of the end and the version spans of all. An answer that is cut has no spans yet.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import orjson

from trainer.inference.errors import ServerError, Unavailable

DATA, DONE = b"data:", b"[DONE]"
SPARE_SHARE, SPARE_SECONDS = 0.1, 0.5
"""The answer is cut so long before the request's deadline: this share of its time, at most these seconds."""
STALL_SECONDS = 10.0
"""After so long without a token, the engine hangs: its tokens are no answer that ran out of time."""


class BadAnswer(ServerError):
    """vLLM's answer differs from the format of version 0.32."""

    code = "bad_answer"


def spare(seconds: float) -> float:
    """Seconds kept at the end of a request of `seconds` for what follows the last token."""
    return min(SPARE_SECONDS, SPARE_SHARE * seconds)


@dataclass(slots=True)
class StreamedAnswer:
    """An answer that grows with each event."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str = ""
    weight_versions: Any = None
    usage: Any = None
    newest: float = 0.0
    """Time of the newest token, by the monotonic clock."""

    def take(self, line: bytes) -> None:
        """Read one line of the stream. Raises BadAnswer, Unavailable for an error of the engine."""
        content = line.strip()
        if not content.startswith(DATA) or (content := content[len(DATA) :].strip()) == DONE:
            return
        try:
            event = orjson.loads(content)
            if "error" in event:
                raise Unavailable(f"vLLM failed while it answered: {str(event['error'])[:300]}")
            self.usage = event.get("usage") or self.usage
            for choice in event["choices"]:
                tokens = choice.get("token_ids") or []
                self.token_ids += tokens
                self.logprobs += choice["logprobs"]["content"] if tokens else []
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
                self.weight_versions = choice.get("weight_versions") or self.weight_versions
                self.newest = time.monotonic() if tokens else self.newest
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadAnswer(f"an event of vLLM's has another shape than version 0.32 sends: {error!r}") from error

    @property
    def stalled(self) -> bool:
        return time.monotonic() - self.newest > STALL_SECONDS

    def body(self) -> dict[str, Any]:
        """The answer as vLLM sends it unstreamed; `abort` ends one that was cut."""
        choice = {
            "token_ids": self.token_ids,
            "logprobs": {"content": self.logprobs},
            "finish_reason": self.finish_reason or "abort",
            "weight_versions": self.weight_versions,
        }
        return {"choices": [choice], "usage": self.usage}
