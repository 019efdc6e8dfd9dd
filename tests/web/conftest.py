"""People, a tiny policy on disk, suites of generated tasks, and groups with verdicts, all made through the services."""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from composer_web.accounts.models import Role, User
from composer_web.accounts.services import create_token, create_user
from composer_web.core.queue import leases
from composer_web.env import REPOSITORY
from composer_web.gateway import configuration
from composer_web.gateway.serving import recording, transcripts
from composer_web.gateway.serving.admission import Admitted, Caller, Wishes
from composer_web.gateway.serving.generating import Written
from composer_web.gateway.serving.openai_types import ChatRequest
from composer_web.gateway.serving.routing import Target
from composer_web.policies.models import Policy
from composer_web.policies.services import import_base
from composer_web.runs import services
from composer_web.runs.models import Run
from composer_web.tasks.models import Suite
from composer_web.tasks.services import build_suite
from sandbox.harness.types import ToolCall
from sandbox.tasks.procedural import generate
from scripts.stack import ports
from tests.web.cli.fixtures import cli, line, reviewer, trained
from tests.web.forked import ForkedProduct
from tests.web.making import SMALL
from trainer.config import RunConfig
from trainer.inference.embedded.serving.process import EmbeddedServer

_task = functools.lru_cache(maxsize=None)(generate)
"""Generated tasks never change: made once a session."""

__all__ = ["cli", "line", "reviewer", "trained"]  # fixtures, for every test below this folder
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def unseen_leases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper's own connection cannot see a lease that a test took inside its transaction, and would call it lost."""
    marker = request.node.get_closest_marker("django_db")
    if marker is not None and not marker.kwargs.get("transaction", False):
        monkeypatch.setattr(leases.keeper, "keep", lambda held: None)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """The real engine, started once: tests deploy policies of their own."""
    with EmbeddedServer(tmp_path_factory.mktemp("engine")) as server:
        yield server


@pytest.fixture(scope="session")
def forked(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedProduct]:
    """The imports of workers, trainers and scripts, once for all tests."""
    made = ForkedProduct(tmp_path_factory.mktemp("product"), ports.any_free(), OPENCOMPOSER_TRAINER_LEASE_SECONDS="3")
    yield made
    made.stop()


@pytest.fixture
def people(db: None) -> dict[str, User]:
    """One person of each role, by role."""
    return {role: create_user(username=role, password=PASSWORD, role=role) for role in Role.values}


@pytest.fixture
def bearer(people: dict[str, User]) -> Callable[..., dict[str, str]]:
    """bearer('operator', 'operate') → headers of a fresh token."""

    def make(role: str, *scopes: str) -> dict[str, str]:
        _, secret = create_token(user=people[role], name="test", scopes=scopes or ["read"])
        return {"Authorization": f"Bearer {secret}"}

    return make


@pytest.fixture
def policy(db: None, tmp_path: Path) -> Policy:
    """A policy folder with real files and four parameters."""
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["Tiny"], "model_type": "tiny", "hidden_size": 2}))
    save_file({"weight": np.zeros((2, 2), np.float32)}, folder / "model.safetensors")
    return import_base(path=folder, name="base", toy=True)


@pytest.fixture
def make_suite(db: None) -> Callable[..., Suite]:
    def make(name: str = "train", count: int = 12) -> Suite:
        split = "held-out" if name == "held-out" else "train"
        specs = [_task(seed, split) for seed in range(count)]
        return build_suite(name=name, purpose=split, specs=specs)

    return make


@pytest.fixture
def draft(policy: Policy, make_suite: Callable[..., Suite]) -> Run:
    """A draft of a small RL run on a suite of twelve tasks."""
    make_suite()
    return services.create_run(config=RunConfig(name="small", seed=3, stage=SMALL))


@pytest.fixture
def running(draft: Run) -> Run:
    """The same, taken by a trainer and with version 0 published."""
    services.start_run(run=draft)
    services.mark_running(run=draft, owner="trainer@test")
    services.record_version(run=draft, version=0)
    return draft


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def base(db: None) -> Policy:
    """The shipped policy."""
    return import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)


@pytest.fixture
def recording_on(db: None) -> configuration.Settings:
    return configuration.change(values={"recording": True, "patterns": [r"CUST-\d+"]})


@pytest.fixture
def exchange(
    base: Policy, recording_on: configuration.Settings, people: dict[str, User]
) -> Callable[..., recording.Exchange]:
    """exchange("question", "answer"): one request and its answer with real tokens, of session `s` of user `ada`."""
    render = transcripts.renderer(REPOSITORY / "policies" / "base")
    token, _ = create_token(user=people["viewer"], name="agent", scopes=["gateway"])

    def make(
        ask: str,
        said: str = "done",
        *,
        session: str = "s",
        user: str = "ada",
        version: int = 0,
        calls: tuple[ToolCall, ...] = (),
    ) -> recording.Exchange:
        tools = [{"type": "function", "function": {"name": name}} for name in ("edit_file", "grep", "write_file")]
        messages = [{"role": "user", "content": ask}]
        request = ChatRequest.model_validate({"model": "production", "messages": messages, "tools": tools})
        written = Written(token_ids=render.turn(calls, said), finish="stop", first_token=0.01)
        written.logprobs = [-0.1] * len(written.token_ids)
        target = Target(base.pk, "base", version, False, REPOSITORY / "policies" / "base")
        return recording.Exchange(
            request=request,
            admitted=Admitted(Caller(people["viewer"], token), target, configuration.settings_of()),
            asked=Wishes(session, True, user),
            answer=transcripts.answered(said, calls),
            calls=calls,
            error=None,
            finish="stop",
            input_tokens=3,
            output_tokens=len(written.token_ids),
            first_token_ms=10.0,
            total_ms=20.0,
            temperature=1.0,
            prompt=transcripts.Prompt(render.start([{"role": "user", "content": ask}])),
            written=written,
            render=render,
        )

    return make
