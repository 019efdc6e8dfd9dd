"""Hosts and processes with what they use: system page, home page, inference servers, command line."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from composer_web.accounts.models import User
from composer_web.core import inference
from composer_web.core.models import WorkerHeartbeat, WorkerSample
from composer_web.core.queue.heartbeats import Presence
from composer_web.runs.models import Run
from composer_web.system import engines, home
from tests.web.cli.support import Cli, data
from tests.web.helpers import as_read
from trainer.inference.contract import DeploymentStatus, InferenceError, ServerHealth
from trainer.usage import Sampler

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["viewer"])
    return client


def test_a_process_with_and_one_without_a_heartbeat(
    running: Run, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence = Presence("rollout")
    presence.beat()
    presence.sample()
    WorkerSample.objects.update(at=timezone.now() - timedelta(seconds=40))
    presence.sample()  # a curve has two points
    served = DeploymentStatus(name=f"run-{running.pk}", version=0, digest="", state="serving", follow=True)
    other = DeploymentStatus(name="eval-3", version=0, digest="", state="serving", follow=False)
    usage = Sampler().sample().model_copy(update={"pid": 4711})
    answer = ServerHealth(ok=True, engine="embedded", deployments=[served, other], usage=[usage])
    monkeypatch.setattr(inference, "health", lambda **_: answer)
    assert engines.sample() == 1
    engine = WorkerSample.objects.get(kind="engine")
    assert (engine.worker, engine.runs) == (f"engine@{usage.host}/4711", [running.pk])
    html = as_read(viewer.get("/system/").content)
    assert f'<td class="mono">{presence.name}</td>' in html and f'<td class="mono">{engine.worker}</td>' in html
    assert "cores</span><svg" in html.replace(" <svg", "<svg") and 'aria-label="Memory from' in html
    assert "No host has reported" not in html
    assert WorkerHeartbeat.objects.count() == 1


def test_a_server_that_does_not_answer_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: object) -> ServerHealth:
        raise InferenceError("nobody there")

    monkeypatch.setattr(inference, "health", away)
    assert engines.sample() == 0 and not WorkerSample.objects.exists()


def test_home_says_how_busy_the_machines_are(viewer: Client) -> None:
    assert home.hardware()["use"] is None and "memory" not in viewer.get("/hardware/").content.decode()
    Presence("rollout").sample()
    found = home.hardware()["use"]
    assert found.hosts == 1 and found.memory_total > 1 << 28
    for path in ("/", "/hardware/"):
        assert f"CPU {100 * found.cpu:.0f}" in as_read(viewer.get(path).content), path


def test_workers_and_their_use_on_the_command_line(running: Run, cli: Cli) -> None:
    presence = Presence("train", runs=lambda: [running.pk])
    presence.sample()
    (found,) = data(cli("workers", "list", "--json"))
    assert (found["worker"], found["runs"]) == (presence.name, [running.pk]) and found["memory"] > 10 << 20
    assert presence.name in cli("workers", "list")[1]
    for words in (("usage", "list"), ("usage", "list", "--worker", presence.name), ("usage", "get", str(running.pk))):
        assert f"memory/{presence.name}" in cli(*words)[1], words
    whole = data(cli("usage", "get", str(running.pk), "--json"))
    assert whole["known"] and whole["series"][f"memory/{presence.name}"][0]["mean"] == found["memory"]
    status, _ = cli("usage", "get", str(running.pk), "--since", "2030-01-01T00:00:00Z")
    assert status == 1
