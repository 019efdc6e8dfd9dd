"""The expert as a server of chat completions on this machine. Only the product that holds its key may ask."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel, ValidationError

from sandbox.harness.types import ToolCall
from sandbox.tasks.spec import TaskSpec
from scripts.study.expert import procedural, repair
from scripts.study.expert.script import Expert, Script

HOST, MODEL = "127.0.0.1", "scripted-expert"
MAX_REQUEST = 8 << 20
CHARACTERS = 4
"""Characters that are reported as one token: the expert has no tokenizer."""


class ChatMessage(BaseModel):
    role: str
    content: str | None = None


class ChatRequest(BaseModel):
    """The fields of a chat completion request that the expert reads."""

    messages: list[ChatMessage]

    def said(self, role: str) -> list[str]:
        return [message.content or "" for message in self.messages if message.role == role]


class ExpertServer:
    """Answers POST /v1/chat/completions for the given tasks while the context is open."""

    def __init__(self, tasks: Iterable[TaskSpec], expert: Expert) -> None:
        self.key = secrets.token_hex(16)
        self._scripts = {task.instruction: script_of(task, expert) for task in tasks}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                if not 0 < size <= MAX_REQUEST:
                    self.close_connection = True
                    return self._send(413, _refusal(f"a request has 1 to {MAX_REQUEST} bytes, not {size}"))
                body = self.rfile.read(size)
                if not secrets.compare_digest(self.headers.get("Authorization") or "", f"Bearer {outer.key}"):
                    return self._send(401, _refusal("the key is not that of this study"))
                if self.path != "/v1/chat/completions":
                    return self._send(404, _refusal(f"there is nothing at {self.path}"))
                return self._send(*outer.answer(body))

            def _send(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                """The product logs its requests."""

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self.url = f"http://{HOST}:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, name="expert", daemon=True)

    def __enter__(self) -> ExpertServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and body for one request."""
        try:
            request = ChatRequest.model_validate_json(body)
        except ValidationError as error:
            return 400, _refusal(f"no chat completion request: {error.errors()[0]['msg']}")
        asked = request.said("user")
        script = self._scripts.get(asked[0]) if asked else None
        if script is None:
            return 400, _refusal("the expert does not know this task; evaluate it on the study's demonstrations only")
        outputs = request.said("tool")
        return 200, _completion(script(outputs), number=len(outputs), read=len(body) // CHARACTERS)


def script_of(task: TaskSpec, expert: Expert) -> Script:
    """Raises ValueError for a task that the expert cannot play."""
    make = procedural.script if task.source == "procedural" else repair.script
    return make(task, expert)


def _completion(wanted: ToolCall, *, number: int, read: int) -> dict[str, Any]:
    arguments = json.dumps(wanted.arguments)
    function = {"name": wanted.name, "arguments": arguments}
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }
    written = len(arguments) // CHARACTERS + 1
    return {
        "id": f"expert-{number}",
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _refusal(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "code": "invalid_request"}}
