"""Engines that serve older weights of a run than they may."""

from __future__ import annotations

from composer_web.runs.models import Run
from trainer.config import RLConfig
from trainer.inference.contract import DeploymentStatus, EngineStatus


def allowed_lag(run: Run) -> int:
    """Versions that an engine of the run may be behind before people are told."""
    stage = run.configuration.stage
    return max(1, stage.staleness_limit if isinstance(stage, RLConfig) else 0)


def lagging(served: DeploymentStatus, *, newest: int, max_lag: int) -> list[EngineStatus]:
    """Engines that are more than `max_lag` versions behind `newest`."""
    return [engine for engine in served.by_engine if 0 <= engine.version < newest - max_lag]
