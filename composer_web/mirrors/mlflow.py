"""MLflow: a run of the same name. Points already in its history are not logged again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from composer_web.mirrors.base import About, Kept, MirrorError, Point

try:
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient
except ImportError as error:
    raise MirrorError("MLflow is not installed: pip install 'opencomposer[mlflow]'") from error

EXPERIMENT = "OpenComposer"
MAX_A_BATCH = 1_000
"""Metrics that MLflow takes in one request."""


class Mlflow:
    """`to` is a tracking address: http(s)://… of a server, or a store of MLflow's own."""

    def __init__(self, about: About, to: str) -> None:
        self.about, self.client = about, MlflowClient(tracking_uri=to)
        self.proved = False

    def write(self, points: Sequence[Point], kept: Kept) -> Kept:
        try:
            run = str(kept.get("run") or self._run())
            metrics = [
                Metric(re.sub(r"[^\w\-./ ]", "_", p.name), p.value, int(p.at.timestamp() * 1000), p.step)
                for p in points
            ]
            if not self.proved:  # a process before this one may have died between logging these and noting it
                known = {
                    (found.key, found.step, found.timestamp)
                    for key in {metric.key for metric in metrics}
                    for found in self.client.get_metric_history(run, key)
                }
                metrics = [m for m in metrics if (m.key, m.step, m.timestamp) not in known]
            for start in range(0, len(metrics), MAX_A_BATCH):
                self.client.log_batch(run, metrics=metrics[start : start + MAX_A_BATCH])
        except MlflowException as error:
            raise MirrorError(f"MLflow refuses the metrics of run {self.about.id}: {error}") from error
        self.proved = True
        return {"run": run}

    def _run(self) -> str:
        """The run that carries our id as a tag, made when there is none."""
        experiment = self.client.get_experiment_by_name(EXPERIMENT)
        where = experiment.experiment_id if experiment else self.client.create_experiment(EXPERIMENT)
        found = self.client.search_runs([where], f"tags.`opencomposer.run` = '{self.about.id}'", max_results=1)
        if found:
            return str(found[0].info.run_id)
        tags = {"opencomposer.run": str(self.about.id), **{f"tag.{tag}": "yes" for tag in self.about.tags}}
        return str(self.client.create_run(where, run_name=self.about.name, tags=tags).info.run_id)
