"""An inference server whose policies are scripts: what the red team does reaches the product token by token.

It speaks the inference contract over HTTP. Each session (one rollout) is a scripted agent; a turn is the JSON of its next
call, exactly as a policy may write it, and what the script gets back is read from the next request's prompt.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sandbox.grading.cheats.base import Script
from sandbox.harness.types import ToolError, ToolErrorKind, ToolResult
from sandbox.tasks.spec import TaskSpec
from trainer.inference.contract import (
    DeploymentSpec,
    DeploymentStatus,
    GenerateRequest,
    GenerateResponse,
    ServerHealth,
    VersionSpan,
)
from trainer.policy import ChatRenderer

TURN_SECONDS = 300.0
"""Longest that a script may think about its next call."""


@dataclass
class RemoteAgent:
    """The agent of a script, whose calls are turns of a rollout somewhere else. Stands in for `cheats.base.Agent`."""

    said: queue.Queue[str] = field(default_factory=queue.Queue)
    heard: queue.Queue[str | None] = field(default_factory=queue.Queue)

    async def call(self, tool: str, /, *, says: str = "", **arguments: object) -> ToolResult:
        """The call as JSON text, with every character that JSON can spell. Raises Ended after the last turn."""
        self.said.put(json.dumps({"name": tool, "arguments": arguments}))
        text = await asyncio.to_thread(self.heard.get)
        if text is None:
            raise Ended
        failed = text.startswith("error: ")
        error = ToolError(kind=ToolErrorKind.REFUSED, message=text[:300]) if failed else None
        return ToolResult(call_id="", output=text, error=error)

    async def shell(self, command: str, *, says: str = "", background: bool = False) -> str:
        return (await self.call("run_terminal_cmd", command=command, background=background)).output

    async def write(self, path: str, text: str, *, says: str = "") -> None:
        await self.call("write_file", path=path, content=text)

    async def append(self, path: str, text: str, *, says: str = "") -> None:
        await self.shell(f"cat >> '{path}' <<'END_OF_TEXT'\n{text}\nEND_OF_TEXT")

    async def finish(self, summary: str = "Fixed.") -> None:
        await self.call("finish", summary=summary)


class Ended(Exception):
    """The rollout is over; its script ends with it."""


class Session:
    """One rollout: the script runs in a thread of its own, and waits for each answer."""

    def __init__(self, script: Script, task: TaskSpec) -> None:
        self.agent = RemoteAgent()
        self.read = 0
        """Tokens of the prompt and of the turns up to the last one."""
        self._script, self._task = script, task
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            asyncio.run(self._script(self.agent, self._task))  # type: ignore[arg-type]
        except Ended:
            return
        except Exception as error:  # noqa: BLE001 - told in the rollout itself, which then fails
            self.agent.said.put(f"the script failed: {error!r}")
        self.agent.said.put("That is all.")

    def turn(self, shown: str | None) -> str:
        if shown is not None:
            self.agent.heard.put(shown)
        return self.agent.said.get(timeout=TURN_SECONDS)


Cast = Callable[[str], tuple[Script, TaskSpec]]
"""Who plays a session, by its name."""


class ScriptedEngine:
    """Use it as a context manager; `url` is where it answers."""

    def __init__(self, renderer: ChatRenderer, cast: Cast) -> None:
        self._renderer, self._cast = renderer, cast
        self._sessions: dict[str, Session] = {}
        self._deployments: dict[str, DeploymentSpec] = {}
        self._lock = threading.Lock()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                health = ServerHealth(ok=True, engine="embedded", deployments=engine.statuses())
                self._send(health.model_dump_json() if self.path == "/health" else "[]")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = engine.generate(body) if self.path == "/generate" else engine.deploy(body)
                self._send(answer.model_dump_json())

            def _send(self, text: str) -> None:
                data = text.encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ScriptedEngine:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions.values():
            session.agent.heard.put(None)
        self._server.shutdown()
        self._server.server_close()

    def statuses(self) -> list[DeploymentStatus]:
        return [self._status(spec) for spec in self._deployments.values()]

    def deploy(self, body: bytes) -> DeploymentStatus:
        spec = DeploymentSpec.model_validate_json(body)
        self._deployments[spec.name] = spec
        return self._status(spec)

    def _status(self, spec: DeploymentSpec) -> DeploymentStatus:
        return DeploymentStatus(name=spec.name, version=0, digest="", state="serving", follow=spec.follow, slots=64)

    def generate(self, body: bytes) -> GenerateResponse:
        request = GenerateRequest.model_validate_json(body)
        assert request.session is not None
        with self._lock:
            session = self._sessions.get(request.session)
            first = session is None
            if session is None:
                session = self._sessions[request.session] = Session(*self._cast(request.session))
        shown = None if first else self._observation(request.prompt_ids[session.read :])
        tokens = self._renderer.turn([], session.turn(shown))
        if len(tokens) > request.max_tokens:
            tokens = tokens[: request.max_tokens]
        session.read = len(request.prompt_ids) + len(tokens)
        return GenerateResponse(
            token_ids=tokens,
            logprobs=[-0.25] * len(tokens),
            spans=[VersionSpan(version=0, start=0, end=len(tokens))],
            finish_reason="stop" if tokens[-1] in self._renderer.stop_ids else "length",
        )

    def _observation(self, tokens: list[int]) -> str:
        """What a tool answered, as the policy reads it."""
        text = str(self._renderer.tokenizer.decode(tokens, skip_special_tokens=False))
        return text.removeprefix("<|tool|>").removesuffix("<|assistant|>").removesuffix("<|end|>")
