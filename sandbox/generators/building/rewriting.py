"""Instructions said in other words by a language model, through any endpoint of the OpenAI chat-completions shape.

The model sees the instruction only, never the oracle. What it writes is used if it tells no more than the evidence did
(`instructions.leaks_answer`); otherwise, and when the endpoint fails, the template's text stays.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import httpx

from sandbox.errors import TaskError
from sandbox.generators.building.instructions import Evidence
from sandbox.network.guard import AsyncTransport, Guard, Refused, Unknown
from sandbox.tasks.files import replace_file

PROMPT = (
    "Rewrite this request to a coding assistant as a developer would type it. Keep every fact, value, name, code block and "
    "traceback; add none, guess no cause and suggest no fix. Answer with the request alone."
)
MAX_GROWTH = 2.0
"""A text that grew by more than this invents something."""


class RewriteFailed(TaskError):
    """The endpoint gave no usable answer. Nothing was made of it."""


@dataclass(frozen=True, slots=True)
class Rewriter:
    """`url` is the base (`https://host/v1`); the key goes into the header and nowhere else."""

    url: str
    model: str
    key: str = ""
    timeout: float = 60.0
    """Seconds for one instruction."""
    transport: httpx.AsyncBaseTransport | None = None
    guard: Guard | None = None
    """Judges the addresses that the host is found at; None where the installation's own settings name the host."""
    cache: Path | None = None
    """Folder of answers by content: the same text is asked of the same model once."""

    async def __call__(self, text: str, evidence: Evidence) -> tuple[str, int]:
        """The text in other words and the tokens that it took now; the text as it is when the answer will not do.

        Raises RewriteFailed when the endpoint cannot be asked.
        """
        key = hashlib.sha256("\0".join((self.url, self.model, PROMPT, text)).encode()).hexdigest()
        kept = None if self.cache is None else self.cache / f"{key}.txt"
        if kept is not None and kept.is_file():
            return _usable(kept.read_text(encoding="utf-8"), text, evidence), 0
        said, tokens = await self._ask(text)
        if kept is not None:
            replace_file(kept, said)
        return _usable(said, text, evidence), tokens

    async def _ask(self, text: str) -> tuple[str, int]:
        messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": text}]
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            async with httpx.AsyncClient(
                timeout=self.timeout,
                transport=AsyncTransport(self.guard) if self.guard else self.transport,
                headers=headers,
                follow_redirects=False,
                trust_env=self.guard is None,
            ) as client:
                answer = await client.post(
                    f"{self.url.rstrip('/')}/chat/completions", json={"model": self.model, "messages": messages}
                )
            answer.raise_for_status()
            body = answer.json()
            said = str(body["choices"][0]["message"]["content"] or "").strip()
            tokens = int((body.get("usage") or {}).get("total_tokens") or 0)
        except (httpx.HTTPError, Refused, Unknown, ValueError, KeyError, IndexError, TypeError) as error:
            raise RewriteFailed(
                f"{self.model} did not rewrite an instruction: {type(error).__name__}: {error}",
                remedy="Check the endpoint, or make the tasks without rewriting",
            ) from error
        return said, tokens


def _usable(said: str, text: str, evidence: Evidence) -> str:
    """What the model said, or the text as it is."""
    # What people must read to begin is the error or the signature: an answer without it is another task.
    facts = [part for part in (evidence.error.split("\n")[0], evidence.wanted.split("\n")[0]) if part in text and part]
    fits = said and len(said) <= MAX_GROWTH * len(text) + 200 and all(fact in said for fact in facts)
    return f"{said}\n" if fits else text
