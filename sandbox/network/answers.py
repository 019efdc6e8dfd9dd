"""Answers of the proxy before they become HTTP, and their rows in the audit log."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self

from aiohttp import web

from sandbox.network.archives import Held
from sandbox.network.audit import MAX_TEXT, AuditRecord, Decision


@dataclass(slots=True)
class Answer:
    """A status with a text, or a file that is held. Whoever sends it closes it."""

    content_type: str
    size: int
    status: int = 200
    text: bytes = b""
    held: Held | None = None
    decision: Decision = "allowed"
    rule: str = ""
    detail: str = ""
    reason: str | None = None
    """Reason phrase of the status line, where it is not the usual one."""
    notice: str | None = None
    """What npm tells its user beside an answer."""

    @classmethod
    def of_text(
        cls, content_type: str, text: str, *, decision: Decision = "allowed", rule: str = "", detail: str = ""
    ) -> Self:
        body = text.encode()
        return cls(content_type, len(body), text=body, decision=decision, rule=rule, detail=detail)

    @classmethod
    def of_file(cls, content_type: str, held: Held) -> Self:
        return cls(content_type, held.size, held=held)

    @classmethod
    def head(cls, content_type: str, size: int) -> Self:
        """Only the headers: `size` is what a GET would bring."""
        return cls(content_type, size)

    def close(self) -> None:
        if self.held is not None:
            self.held.close()


@dataclass(slots=True)
class Row:
    """An audit record in the making."""

    method: str
    path: str
    host: str = ""
    decision: Decision = "allowed"
    rule: str = ""
    detail: str = ""
    status: int = 0
    fetched: int = 0
    sent: int = 0
    count: int = 1
    began: float = field(default_factory=time.monotonic)
    recorded: bool = False

    def record(self, sandbox: str) -> AuditRecord:
        return AuditRecord(
            time=datetime.now(UTC),
            sandbox=sandbox,
            method=self.method[:MAX_TEXT],
            path=self.path[:MAX_TEXT],
            host=self.host[:MAX_TEXT],
            decision=self.decision,
            rule=str(self.rule),
            detail=self.detail[:MAX_TEXT],
            status=self.status,
            fetched=self.fetched,
            sent=self.sent,
            seconds=round(time.monotonic() - self.began, 4),
            count=self.count,
        )


def refusal(row: Row, request: web.BaseRequest, status: int, text: str) -> Answer:
    """A refusal in the form that the tool which asked shows to its user: pip and uv show the reason phrase, npm the
    `error` of a JSON body, go the text."""
    plain = text.encode("ascii", "replace").decode().replace("\r", " ").replace("\n", " ")
    if request.raw_path.startswith("/npm/"):
        answer = Answer.of_text("application/json", json.dumps({"error": plain}))
    else:
        answer = Answer.of_text("text/plain", plain + "\n")
    answer.status, answer.reason = status, plain[:300]
    row.status, row.detail, row.sent = status, plain, 0 if request.method == "HEAD" else answer.size
    return answer
