"""Traces of a real rollout: the shipped policy on the real engine in real sandboxes, read from the in-memory exporter."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from composer_web.core.artifacts import artifacts
from composer_web.env import REPOSITORY, Env, WrongSetting, env
from composer_web.evals.services import create_evaluation, mark_running
from composer_web.policies.services import import_base
from composer_web.rollouts.dispatch import services
from composer_web.rollouts.models import Group, Rollout
from composer_web.rollouts.worker import execution, loop, tracing
from composer_web.tasks.models import Suite
from composer_web.tasks.services import build_procedural
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.toy.preset import toy_harness
from trainer.types import Trajectory

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

PATIENCE = 400.0


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    made, kept = TracerProvider(), InMemorySpanExporter()
    made.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(tracing, "provider", lambda: made)
    yield kept
    made.shutdown()


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(600)
def test_a_real_rollout_from_dispatch_to_recorded(
    spans: InMemorySpanExporter, engine: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env(), "inference_url", engine.url)
    monkeypatch.setattr(loop, "current_loop", None)
    execution.deployed_at.clear()
    policy = import_base(path=REPOSITORY / "policies" / "base", name="base", toy=True)
    build_procedural(n_train=1, n_held_out=1)
    suite = Suite.objects.get(name="held-out")
    evaluation = create_evaluation(policy=policy, version=0, suite=suite, tasks=1, samples=2, harness=toy_harness())
    version = suite.memberships.first()
    assert version is not None
    services.dispatch_evaluation(evaluation=evaluation, version_ids=[version.task_version_id])
    mark_running(evaluation=evaluation)
    group = Group.objects.get(evaluation=evaluation)
    end = time.monotonic() + PATIENCE
    while (outcome := execution.execute(group.pk)) != "accepted":  # a busy machine's attempt is tried again, as ever
        assert time.monotonic() < end, outcome
        spans.clear()

    found = spans.get_finished_spans()
    by_id = {span.context.span_id: span for span in found}

    def below(parent: ReadableSpan) -> list[ReadableSpan]:
        children = [s for s in found if s.parent is not None and s.parent.span_id == parent.context.span_id]
        return sorted(children, key=lambda s: s.start_time or 0)

    (root,) = [span for span in found if span.parent is None]
    assert root.name == "group" and root.attributes is not None and root.attributes["group"] == group.pk
    assert len({span.context.trace_id for span in found}) == 1
    names = [span.name for span in below(root)]
    assert names[0] == "dispatch" and names[-1] == "record" and names.count("rollout") == 2
    for span in found:
        assert span.start_time is not None and span.end_time is not None and span.start_time <= span.end_time
        if span.parent is not None:
            assert span.start_time >= (by_id[span.parent.span_id].start_time or 0)
    for span in (s for s in below(root) if s.name == "rollout"):
        assert span.attributes is not None
        row = Rollout.objects.get(group=group, sample=span.attributes["sample"])
        recorded = artifacts().get_model(row.artifact_key, Trajectory)
        assert span.attributes["verdict"] == row.verdict and span.attributes["turns"] == len(recorded.turns) > 0
        parts = [part.name for part in below(span)]
        assert parts == ["queue", "sandbox.create", *["turn"] * len(recorded.turns), "grading"]
        turns = [part for part in below(span) if part.name == "turn"]
        for turn, told in zip(recorded.turns, turns, strict=True):
            tools = [f"tool {call.name}" for call, _ in zip(turn.calls, turn.results, strict=False)]
            assert [part.name for part in below(told)] == ["generate", *tools]


def test_off_unless_the_setting_names_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env().traces_url == "" and tracing.provider() is None
    monkeypatch.setenv("OPENCOMPOSER_TRACES_URL", "collector:4318")
    with pytest.raises((WrongSetting, ValueError), match="http://host:4318"):
        Env()
