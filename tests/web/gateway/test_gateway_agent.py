"""An open agent as its makers ship it, against the gateway: mini-swe-agent with litellm, told nothing but an address.

The shipped policy solves nothing with it. What counts is that every request is answered, its calls are read, the agent ends by
its own limit of turns, and the whole session is recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from composer_web.core.artifacts import artifacts
from composer_web.gateway import configuration
from composer_web.gateway.models import Session
from sandbox.tasks.procedural import generate
from tests.web.gateway import test_gateway
from tests.web.gateway.test_gateway import Gateway
from trainer.realtime.sessions import RecordedTurn

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(1800)]
gateway, promoted = test_gateway.gateway, test_gateway.promoted

PACKAGE = "mini-swe-agent==2.4.6"
BESIDE = ("mcp",)
"""What its newest dependencies import without asking for it."""
INSTALL_SECONDS, RUN_SECONDS = 1200, 600
TURNS = 4
CONFIG = """
agent:
  system_template: You are a helpful assistant that can interact with a computer.
  instance_template: "{{task}}"
  step_limit: %d
  cost_limit: 0
  max_consecutive_format_errors: 0
model:
  cost_tracking: ignore_errors
  model_kwargs:
    temperature: 1.0
    max_tokens: 64
    extra_headers: {X-OpenComposer-Session: mini-1, X-OpenComposer-Record: "yes"}
"""


@pytest.fixture(scope="module")
def agent(request: pytest.FixtureRequest) -> Path:
    """The command in an environment of its own, kept from run to run."""
    cache = request.config.cache
    assert cache is not None
    home = cache.mkdir(PACKAGE.replace("==", "-"))
    command = home / "bin" / "mini"
    if not command.exists():
        venv.create(home, with_pip=True)
        python, uv = str(home / "bin" / "python"), Path(sys.executable).with_name("uv")
        place = [str(uv), "pip", "install", "--python", python] if uv.exists() else [python, "-m", "pip", "install"]
        install = [*place, "-q", PACKAGE, *BESIDE]
        done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if done.returncode:
            pytest.skip(f"{PACKAGE} cannot be had here: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return command


def test_mini_swe_agent(promoted: Gateway, agent: Path, tmp_path: Path) -> None:
    configuration.change(values={"recording": True})
    (tmp_path / "agent.yaml").write_text(CONFIG % TURNS)
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [
            *(agent, "--model", "openai/production", "--task", generate(0, "train").instruction),
            *("--config", tmp_path / "agent.yaml", "--yolo", "--exit-immediately", "--output", tmp_path / "told.json"),
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "NO_PROXY": "127.0.0.1",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_API_BASE": f"{promoted.url}/v1",
            "OPENAI_API_KEY": promoted.secret,
        },
        cwd=tmp_path / "work",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["info"]["exit_status"] == "LimitsExceeded"
    assert told["info"]["model_stats"]["api_calls"] == TURNS, "each request was answered at the first try"
    answers = [m["extra"]["response"] for m in told["messages"] if "response" in m.get("extra", {})]
    assert [answer["system_fingerprint"] for answer in answers] == ["base@0"] * TURNS
    calls = [call for answer in answers for call in answer["choices"][0]["message"]["tool_calls"] or []]
    assert calls, "the policy calls tools, and the agent reads them as calls"
    session = Session.objects.get(client_id="mini-1")
    assert session.turns == TURNS and session.output_tokens == sum(a["usage"]["completion_tokens"] for a in answers)
    turns = [artifacts().get_model(turn.artifact_key, RecordedTurn) for turn in session.recorded.order_by("index")]
    assert [call["name"] for turn in turns for call in turn.calls] == [call["function"]["name"] for call in calls]
    assert {tuple(turn.tools) for turn in turns} == {("bash",)}
