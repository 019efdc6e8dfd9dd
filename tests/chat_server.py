"""A real OpenAI-compatible server for tests: it reads the transcript it is sent and answers by a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sandbox.tasks.spec import TaskSpec

Reply = tuple[int, Any]
Model = Callable[[dict[str, Any]], Reply]


class ChatServer:
    """Answers POST /v1/chat/completions with what `model` makes of the request, as long as the key is right."""

    def __init__(self, model: Model, *, key: str = "") -> None:
        self.model = model
        self.requests: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(request)
                status: int
                body: Any
                if key and self.headers.get("Authorization") != f"Bearer {key}":
                    status, body = 401, {"error": {"message": "wrong key", "code": "invalid_api_key"}}
                elif self.path != "/v1/chat/completions":
                    status, body = 404, {"error": {"message": f"nothing at {self.path}"}}
                else:
                    status, body = outer.model(request)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> ChatServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def completion(
    request: Mapping[str, Any],
    text: str = "",
    calls: Sequence[tuple[str, Mapping[str, Any] | str]] = (),
    *,
    finish: str = "",
    written: int = 7,
) -> Reply:
    """An answer in the documented shape. Tokens read are counted as one for four characters of the transcript."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{len(request['messages'])}_{i}",
                "type": "function",
                "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)},
            }
            for i, (name, a) in enumerate(calls)
        ]
    read = len(json.dumps(request["messages"])) // 4
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    finish = finish or ("tool_calls" if calls else "stop")
    choice = {"index": 0, "finish_reason": finish, "message": message}
    return 200, {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}


def said(request: Mapping[str, Any], role: str) -> list[str]:
    """Contents of the messages of one role."""
    return [str(message["content"]) for message in request["messages"] if message["role"] == role]


def solver(tasks: Sequence[TaskSpec], *, more: Mapping[str, str] | None = None) -> Model:
    """A model that knows the oracle's files of `tasks`: it writes them (and `more`), then finishes. When a person asks
    something in between, it answers and does nothing more."""
    known = {task.instruction: task.gold for task in tasks}

    def model(request: dict[str, Any]) -> Reply:
        asked, answers = said(request, "user"), said(request, "tool")
        if len(asked) > 1:
            return completion(request, "I had just begun to look at the file.")
        if not answers:
            return completion(request, "Let me look.", [("list_dir", {"path": "."})])
        if len(answers) == 1:
            files = {**known[asked[0]], **(more or {})}
            return completion(
                request, "", [("write_file", {"path": path, "content": text}) for path, text in files.items()]
            )
        return completion(request, "", [("finish", {"summary": "done"})])

    return model
