"""Outcomes of runs side by side: what was sampled with another K stands in another row."""

from __future__ import annotations

import pytest

from composer_web.runs import metrics, services
from composer_web.runs.charts import comparing
from composer_web.runs.models import Run
from tests.web.making import SMALL
from trainer.config import RunConfig

pytestmark = pytest.mark.django_db


def run_of(name: str, *, group_size: int, eval_samples: int, values: dict[str, float]) -> Run:
    stage = SMALL.model_copy(update={"group_size": group_size, "eval_samples": eval_samples})
    made = services.create_run(config=RunConfig(name=name, stage=stage))
    metrics.record(run=made, step=1, values=values)
    made.refresh_from_db()
    return made


def test_a_best_of_k_has_a_row_for_each_k(draft: Run) -> None:
    best = {"eval/best_of_k": 0.5, "reward/best_of_k": 0.75, "eval/pass1": 0.25}
    runs = [
        run_of("two", group_size=2, eval_samples=2, values=best),
        run_of("two of eight", group_size=8, eval_samples=2, values={**best, "eval/best_of_k": 0.625}),
        run_of("four", group_size=8, eval_samples=4, values={**best, "reward/best_of_k": 0.875}),
        run_of("unmeasured", group_size=4, eval_samples=16, values={"eval/pass1": 0.0}),
    ]
    rows = {row.label: [value.replace("\u202f", " ") for value in row.values] for row in comparing.outcomes(runs)}
    assert {label: values for label, values in rows.items() if "K = " in label} == {
        "Best-of-K reward (K = 2)": ["0.75", "–", "–", "–"],
        "Best-of-K reward (K = 8)": ["–", "0.75", "0.875", "–"],
        "Held-out best-of-K (K = 2)": ["50.0 %", "62.5 %", "–", "–"],
        "Held-out best-of-K (K = 4)": ["–", "–", "50.0 %", "–"],
    }
    assert ["25.0 %", "25.0 %", "25.0 %", "0.0 %"] in rows.values(), "what has no K is one row"
