"""CPU, memory, network and GPU use of inference servers, which have no database: the control worker asks them."""

from __future__ import annotations

import re

from composer_web.core import inference
from composer_web.core.queue import samples
from trainer.inference.contract import InferenceError

KIND = "engine"
RUN = re.compile(r"run-(\d+)")
"""Name of a run's deployment (`runs.paths.deployment_name`)."""


def sample() -> int:
    """Record a sample of every server that reports. Returns how many do."""
    try:
        health = inference.health()
    except InferenceError:
        return 0  # the health page says so
    runs = [int(found[1]) for one in health.deployments if (found := RUN.fullmatch(one.name))]
    for usage in health.usage:
        samples.record(worker=f"{KIND}@{usage.host}/{usage.pid}", kind=KIND, usage=usage, runs=runs)
    return len(health.usage)
