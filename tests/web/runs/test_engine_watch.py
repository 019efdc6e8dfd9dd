"""An engine that computes something else in the middle of a step is an event of the run, though no step ends any more."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from composer_web.core import inference
from composer_web.runs import services as run_services
from composer_web.runs.models import Run, RunEvent
from composer_web.runs.paths import deployment_name
from composer_web.runs.training import engine_watch, trainer_bridge
from composer_web.runs.training.trainer_bridge import DatabaseGroupSource, DatabaseSink, RunControl
from tests.web.making import take_run
from trainer.errors import BatchTimeout
from trainer.inference.contract import DeploymentStatus, EngineStatus, ServerHealth, ServerStatus

pytestmark = [pytest.mark.django_db(transaction=True)]
WORDS = "vLLM at http://gpu-2 does not compute version 0: off by 2.4 nats; restart that engine. Found while it served"


def said(run: Run, *engines: EngineStatus, **of_server: Any) -> ServerHealth:
    name, wrong = deployment_name(run), any(engine.proof == "differs" for engine in engines)
    status = DeploymentStatus(name=name, version=0, digest="", state="serving", follow=True, engines=list(engines))
    servers = [
        ServerStatus(url="http://gpu-1", ok=True, deployment=name, leaving=True, running=3),
        ServerStatus(url="http://gpu-2", ok=not wrong, deployment=name, error=WORDS if wrong else ""),
    ]
    return ServerHealth(ok=True, engine="router", deployments=[status], servers=servers, **of_server)


def test_it_is_told_while_the_step_waits_and_once(
    draft: Run, people: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_services.start_run(run=draft)
    run, held = draft, take_run(draft)
    assert held is not None
    run.refresh_from_db()
    run_services.record_version(run=run, version=0)
    well = [EngineStatus(url=f"http://gpu-{n}", version=0, proof="proven") for n in (1, 2)]
    wrong = EngineStatus(url="http://gpu-2", version=-1, proof="differs", error=WORDS)
    answers = [said(run, *well), said(run, well[0], wrong), said(run, well[0], wrong), said(run, wrong)]
    monkeypatch.setattr(inference, "health", lambda **_: answers.pop(0) if len(answers) > 1 else answers[0])
    monkeypatch.setattr(engine_watch, "WATCH_SECONDS", 0.0)
    monkeypatch.setattr(trainer_bridge, "WAITING_SECONDS", 0.2)
    sink = DatabaseSink(RunControl(run, held))
    source = DatabaseGroupSource(sink.control, waiting=sink.engines.waiting)
    with pytest.raises(BatchTimeout):
        source.next_batch(1, timeout=2.0)
    told = list(RunEvent.objects.filter(run=run, level="error").values_list("message", flat=True))
    assert told == [f"an engine is left out: {WORDS}; 1 of 2 engines go on"], "once for its words"
    client = Client()
    client.force_login(people["viewer"])
    page = client.get(f"/runs/{run.pk}/").content.decode()
    assert "an engine is left out: vLLM at http://gpu-2 does not compute version 0" in page


def test_an_engine_that_does_not_follow_is_told_until_it_catches_up() -> None:
    told: list[str] = []
    watch = engine_watch.EngineWatch("run-1", lambda level, message, data=None: told.append(message), lambda _: True)

    def look(version: int) -> None:
        engines = [EngineStatus(url=f"http://gpu-{n}", version=v, proof="proven") for n, v in ((1, 9), (2, version))]
        watch.saw(DeploymentStatus(name="run-1", version=9, digest="", state="serving", follow=True, engines=engines))

    watch.published(9, "")
    for version in (8, 3, 4, 9, 2):
        look(version)
    assert [message.split(":")[0:2] for message in told] == [
        ["the engine http", "//gpu-2 serves version 3 and 9 is published"],
        ["the engine http", "//gpu-2 serves version 2 and 9 is published"],
    ]


def test_what_leaves_and_what_is_wrong_with_the_list_stand_on_both_pages(
    running: Run, people: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    well = EngineStatus(url="http://gpu-2", version=0, proof="proven")
    problem = "/data/run/vllm.json: file: Invalid JSON"
    monkeypatch.setattr(inference, "health", lambda **_: said(running, well, error=problem))
    client = Client()
    client.force_login(people["viewer"])
    for address in ("/system/", f"/runs/{running.pk}/part/clusters/"):
        page = client.get(address)
        assert page.status_code == 200, address
        shown = page.content.decode()
        assert "off the list; still runs 3" in shown and problem in shown, address
