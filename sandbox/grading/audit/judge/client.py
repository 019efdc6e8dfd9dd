"""Asking a language model through any endpoint of the OpenAI chat-completions shape.

Its answers are opinions: they become findings of severity medium, which people confirm or dismiss. They never set a
reward, never quarantine by themselves, and never take a finding of a rule away.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandbox.grading.audit.attempt.attempt import Attempt
from sandbox.grading.audit.attempt.evidence import Evidence
from sandbox.grading.audit.judge.record import record
from sandbox.grading.audit.judge.rubric import Rubric, rubric
from sandbox.grading.audit.rules.base import Finding, Severity
from sandbox.network.guard import Guard, Refused, Transport, Unknown

MAX_ANSWER = 200_000
TRIES = 3
TIMEOUT = 120.0
RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
QUOTE_CHARS = 400


class JudgeError(Exception):
    """The judge gave no usable answer: missing data, never a finding. The message says what to look at."""


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    aspect: str
    answer: Literal["yes", "no", "unsure"]
    turn: int | None = Field(default=None, ge=0)
    quote: str = Field(default="", max_length=QUOTE_CHARS)


class Opinion(BaseModel):
    """What a model said of one attempt."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model: str
    rubric_version: int
    answers: tuple[Answer, ...]


class Cache(Protocol):
    """Opinions by key; a judge is asked once about the same record."""

    def get(self, key: str) -> str | None: ...

    def put(self, key: str, value: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is the base (`https://host/v1`); the key goes into the header and nowhere else."""

    url: str
    model: str
    key: str = ""
    timeout: float = TIMEOUT
    """Seconds for one opinion, retries included."""
    guard: Guard | None = None
    """Judges the addresses that the host is found at; None where the installation's own settings name the host."""

    def client(self, seconds: float) -> httpx.Client:
        """Follows no redirect. Raises what `sandbox.network.guard` raises, where there is a guard."""
        return httpx.Client(
            timeout=seconds,
            follow_redirects=False,
            headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
            trust_env=self.guard is None,
            transport=None if self.guard is None else Transport(self.guard),
        )


class Judge:
    def __init__(self, endpoint: Endpoint, *, cache: Cache | None = None) -> None:
        self.endpoint = endpoint
        self.rubric: Rubric = rubric()
        self._cache = cache

    def opinion(self, attempt: Attempt) -> Opinion:
        """Ask, or take what was said before of the same record. Raises JudgeError."""
        text = record(attempt)
        key = self.key(text)
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            return Opinion.model_validate_json(kept)
        boundary = f"record-{secrets.token_hex(12)}"
        answers = self._parse(self._ask(text, boundary), boundary)
        made = Opinion(model=self.endpoint.model, rubric_version=self.rubric.version, answers=answers)
        if self._cache is not None:
            self._cache.put(key, made.model_dump_json())
        return made

    def key(self, text: str) -> str:
        """Names the question: record, rubric with its prompt, and model."""
        return hashlib.sha256(f"{self.rubric.digest}\n{self.endpoint.model}\n{text}".encode()).hexdigest()

    def findings(self, attempt: Attempt) -> list[Finding]:
        """A finding for each aspect that the model answers with yes and a quote that the record holds."""
        texts = _texts(attempt)
        made = []
        for answer in self.opinion(attempt).answers:
            place = _find(answer, texts) if answer.answer == "yes" else None
            if place is not None:
                title = next(aspect.title for aspect in self.rubric.aspects if aspect.id == answer.aspect)
                made.append(
                    Finding(
                        rule=answer.aspect,
                        version=self.rubric.version,
                        severity=Severity.MEDIUM,
                        summary=f"{title}, says {self.endpoint.model}",
                        evidence=(place,),
                    )
                )
        return made

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _ask(self, text: str, boundary: str) -> str:
        body = {
            "model": self.endpoint.model,
            "temperature": 0,
            "max_tokens": 1500,
            "response_format": {"type": "json_object"},
            "messages": [
                {"role": "system", "content": self.rubric.prompt(boundary)},
                {"role": "user", "content": f"{boundary}\n{text}\n{boundary}"},
            ],
        }
        end = time.monotonic() + self.endpoint.timeout
        problem = "no try was made"
        for attempt in range(TRIES):
            left = end - time.monotonic()
            if left <= 0:
                break
            try:
                with self.endpoint.client(left) as client:
                    answer = client.post(f"{self.endpoint.url.rstrip('/')}/chat/completions", json=body)
            except Refused as error:
                raise JudgeError(
                    f"the judge at {httpx.URL(self.endpoint.url).host} may not be asked: {error}"
                ) from error
            except (httpx.HTTPError, Unknown) as error:
                problem = f"{type(error).__name__}"
            else:
                if answer.status_code == 200:
                    return _content(answer)
                problem = f"status {answer.status_code}"
                if answer.status_code not in RETRY_STATUS:
                    break
            wait = min(2.0**attempt * 0.25, max(0.0, end - time.monotonic()))
            if attempt + 1 < TRIES:
                time.sleep(wait)
        raise JudgeError(
            f"the judge at {httpx.URL(self.endpoint.url).host} gave no answer ({problem}); "
            "check OPENCOMPOSER_JUDGE_URL, OPENCOMPOSER_JUDGE_MODEL and the key"
        )

    def _parse(self, content: str, boundary: str) -> tuple[Answer, ...]:
        """The answers, or JudgeError: another record, an aspect missing or invented, not JSON."""
        start = content.find("{")
        try:
            data, _ = json.JSONDecoder().raw_decode(content[start:]) if start >= 0 else (None, 0)
            if not isinstance(data, dict) or data.get("record") != boundary:
                raise JudgeError("the judge answered about another record: its answer is not used")
            answers = tuple(Answer.model_validate(item) for item in data.get("answers", ()))
        except (ValueError, RecursionError, TypeError, ValidationError) as error:
            raise JudgeError(f"the judge's answer does not parse: {type(error).__name__}") from error
        wanted = sorted(aspect.id for aspect in self.rubric.aspects)
        if sorted(answer.aspect for answer in answers) != wanted:
            raise JudgeError(f"the judge must answer each of {', '.join(wanted)} once")
        return answers


def _content(answer: httpx.Response) -> str:
    """The text of the first choice. Raises JudgeError for anything that is not the documented shape."""
    if len(answer.content) > MAX_ANSWER:
        raise JudgeError(f"the judge's answer has more than {MAX_ANSWER} bytes")
    try:
        data: Any = answer.json()
        content = data["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise JudgeError("the endpoint does not answer in the shape of chat completions") from error
    if not isinstance(content, str):
        raise JudgeError("the judge answered without text")
    return content


# --- quotes -------------------------------------------------------------------------------------------------------


def _texts(attempt: Attempt) -> list[tuple[Evidence, str]]:
    """Every text of the record with its place."""
    found = []
    for turn, step in enumerate(attempt.steps):
        found.append((Evidence(source="text", turn=turn), step.text))
        for index, call in enumerate(step.calls):
            for name, value in call.arguments.items():
                if isinstance(value, str):
                    found.append((Evidence(source="call", turn=turn, call=index, field=name), value))
        for index, result in enumerate(step.results):
            found.append((Evidence(source="output", turn=turn, call=index), result.output))
    found.append((Evidence(source="patch"), attempt.patch))
    return found


def _find(answer: Answer, texts: list[tuple[Evidence, str]]) -> Evidence | None:
    """Where the quote stands, the named turn first; None for a quote that the record does not hold."""
    quote = answer.quote.strip().strip('"')
    words = quote.replace("\\n", "\n").replace('\\"', '"').split()
    if len("".join(words)) < 4:
        return None
    regex = re.compile(r"[\s+\-]*".join(re.escape(word) for word in words))
    ordered = sorted(texts, key=lambda item: item[0].turn != answer.turn)
    for place, text in ordered:
        if found := regex.search(text):
            return place.model_copy(update={"start": found.start(), "end": found.end(), "excerpt": quote[:240]})
    return None
