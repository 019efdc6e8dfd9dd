"""Rollouts as OpenTelemetry traces: one a group, from dispatch to recorded, off unless `OPENCOMPOSER_TRACES_URL` is set.

Spans are made when a group ends, from the durations that its trajectories recorded, so that nothing in the loop knows of
them: phases follow each other in the order in which they ran, and a rollout begins when its group was taken. What lies
between phases (waiting for a free engine) is in no child span.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from composer_web.env import env
from composer_web.rollouts.models import Group
from trainer.types import Trajectory, Turn

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

SECOND = 1_000_000_000
"""OpenTelemetry counts nanoseconds since 1970."""


@lru_cache(maxsize=1)
def provider() -> TracerProvider | None:
    """Tracer provider that receives the spans. None if the setting is empty."""
    if not env().traces_url:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    made = TracerProvider(resource=Resource.create({"service.name": "opencomposer"}))
    made.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(f"{env().traces_url.rstrip('/')}/v1/traces", timeout=5))
    )
    return made


def trace(
    group: Group, trajectories: Sequence[Trajectory], *, began: datetime, graded: datetime, now: datetime
) -> None:
    """Export a group's trace: claimed at `began`, last rollout graded at `graded`, recorded at `now`. Does nothing
    when tracing is off."""
    found = provider()
    if found is not None:
        _Telling(found.get_tracer("opencomposer.rollouts")).group(group, trajectories, began, graded, now)


class _Telling:
    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    def span(self, name: str, parent: Span | None, start: int, **attributes: Any) -> Span:
        from opentelemetry.trace import set_span_in_context

        kept = {key: value for key, value in attributes.items() if value is not None}
        context = set_span_in_context(parent) if parent is not None else None
        return self.tracer.start_span(name, context=context, start_time=start, attributes=kept)

    def lasting(self, name: str, parent: Span, start: int, seconds: float, **attributes: Any) -> int:
        """Add a span without children. Returns its end time."""
        end = start + int(seconds * SECOND)
        self.span(name, parent, start, **attributes).end(end)
        return end

    def group(
        self, group: Group, trajectories: Sequence[Trajectory], began: datetime, graded: datetime, now: datetime
    ) -> None:
        asked, taken, ready, end = (
            _nanoseconds(moment) for moment in (group.dispatched_at or began, began, graded, now)
        )
        root = self.span(
            "group",
            None,
            min(asked, taken),
            group=group.pk,
            run=group.run_id,
            evaluation=group.evaluation_id,
            task=group.task_version.task.slug,
            attempt=group.attempts,
            policy_version=group.dispatched_version,
        )
        self.span("dispatch", root, min(asked, taken)).end(taken)
        for trajectory in trajectories:
            self.rollout(root, trajectory, taken)
        self.span("record", root, ready).end(end)
        root.end(end)

    def rollout(self, root: Span, trajectory: Trajectory, start: int) -> None:
        from opentelemetry.trace import Status, StatusCode

        spent = trajectory.seconds
        verdict = str(trajectory.report.verdict)
        span = self.span(
            "rollout",
            root,
            start,
            sample=trajectory.sample,
            verdict=verdict,
            reward=trajectory.reward,
            stop_reason=str(trajectory.stop_reason),
            turns=len(trajectory.turns),
        )
        if verdict == "infra_error":
            span.set_status(Status(StatusCode.ERROR, trajectory.report.cause))
        at = self.lasting("queue", span, start, spent.get("queue", 0.0))
        at = self.lasting("sandbox.create", span, at, spent.get("start", 0.0))
        for turn in trajectory.turns:
            at = self.turn(span, turn, at)
        at = self.lasting("grading", span, at, spent.get("grade", 0.0), verdict=verdict)
        span.end(max(at, start + int((spent.get("total", 0.0) + spent.get("queue", 0.0)) * SECOND)))

    def turn(self, rollout: Span, turn: Turn, start: int) -> int:
        span = self.span("turn", rollout, start, index=turn.index, tokens=turn.token_end - turn.token_start)
        at = self.lasting("generate", span, start, turn.generate_seconds)
        for call, result in zip(turn.calls, turn.results, strict=False):  # a broken last call has no result
            error = str(result.error.kind) if result.error else None
            at = self.lasting(f"tool {call.name}", span, at, result.seconds, tool=call.name, error=error)
        end = max(at, start + int((turn.generate_seconds + turn.tool_seconds) * SECOND))
        span.end(end)
        return end


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
