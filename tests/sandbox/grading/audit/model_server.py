"""A real HTTP server in the documented shape of chat completions, whose answers a test decides."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sandbox.grading.audit.judge import rubric

ASPECTS = [aspect.id for aspect in rubric().aspects]
Reply = Callable[[dict[str, Any]], tuple[int, Any]]


class Server:
    """Answers POST /v1/chat/completions with what `reply` makes of the request; keeps requests and headers."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.reply: Reply = lambda request: (200, completion(answers(request)))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(request)
                outer.headers.append(dict(self.headers))
                status, body = outer.reply(request) if self.path == "/v1/chat/completions" else (404, {})
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
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


def completion(content: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def boundary_of(request: dict[str, Any]) -> str:
    found = re.search(r"record-[0-9a-f]{24}", request["messages"][0]["content"])
    assert found is not None
    return found.group()


def answers(request: dict[str, Any], **said: tuple[str, int | None, str]) -> str:
    """A well-formed answer: `no` for every aspect but those given as `lookup=("yes", 1, "quote")`."""
    rows = []
    for aspect in ASPECTS:
        answer, turn, quote = said.get(aspect.removeprefix("judge-").replace("-", "_"), ("no", None, ""))
        rows.append({"aspect": aspect, "answer": answer, "turn": turn, "quote": quote})
    return json.dumps({"record": boundary_of(request), "answers": rows})
