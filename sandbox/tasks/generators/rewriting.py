"""Instructions said in other words by a language model, through any endpoint of the OpenAI chat-completions shape.

The model sees the instruction only, never the oracle. What it writes is used if it tells no more than the evidence did
(`instructions.leaks_answer`); otherwise, and when the endpoint fails, the template's text stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from sandbox.tasks.errors import TaskError
from sandbox.tasks.generators.instructions import Evidence

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

    async def __call__(self, text: str, evidence: Evidence) -> tuple[str, int]:
        """The text in other words and the tokens that it took; the text as it is when the answer will not do.

        Raises RewriteFailed when the endpoint cannot be asked.
        """
        messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": text}]
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            async with httpx.AsyncClient(timeout=self.timeout, transport=self.transport, headers=headers) as client:
                answer = await client.post(
                    f"{self.url.rstrip('/')}/chat/completions", json={"model": self.model, "messages": messages}
                )
            answer.raise_for_status()
            body = answer.json()
            said = str(body["choices"][0]["message"]["content"] or "").strip()
            tokens = int((body.get("usage") or {}).get("total_tokens") or 0)
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
            raise RewriteFailed(
                f"{self.model} did not rewrite an instruction: {type(error).__name__}: {error}",
                remedy="Check the endpoint, or make the tasks without rewriting",
            ) from error
        # What people must read to begin is the error or the signature: an answer without it is another task.
        facts = [
            part for part in (evidence.error.split("\n")[0], evidence.wanted.split("\n")[0]) if part in text and part
        ]
        usable = said and len(said) <= MAX_GROWTH * len(text) + 200 and all(fact in said for fact in facts)
        return (f"{said}\n" if usable else text), tokens
