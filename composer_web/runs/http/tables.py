"""The runs table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import django_tables2 as tables
from django.db.models import F, FloatField, QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.db.models.lookups import IsNull
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe

from composer_web.runs.actions import possible
from composer_web.runs.charts.panels import definition
from composer_web.runs.charts.sparklines import sparklines
from composer_web.runs.models import Run
from composer_web.runs.selectors import eta_seconds
from composer_web.ui.tables import STRONG, AgoColumn, ChosenTable, StateColumn, TickColumn
from composer_web.ui.templatetags import ui
from composer_web.ui.texts.glossary import sentence
from trainer.learning.metrics import METRICS

DONE = mark_safe(' class="done"')
SAMPLES = {"eval/best_of_k": "eval_samples", "reward/best_of_k": "group_size"}
"""Metric → the setting of its run that is its K."""


class LatestColumn(tables.Column):
    """Last value of a metric, from a column of the run's row. Runs without a value sort last in both directions."""

    def __init__(self, show: Callable[[Any], str], *, accessor: str, **kwargs: Any) -> None:
        super().__init__(accessor=accessor, empty_values=(), attrs={"td": {"class": "num"}}, **kwargs)
        self.show, self.column = show, accessor

    def render(self, value: float | None) -> str:
        return self.show(value)

    def order(self, queryset: QuerySet[Run], is_descending: bool) -> tuple[QuerySet[Run], bool]:
        by = F(self.column)
        ordered = by.desc(nulls_last=True) if is_descending else by.asc(nulls_last=True)
        return queryset.order_by(ordered, "-pk"), True


class BestColumn(LatestColumn):
    """A best of K, with its K. Values of different K do not compare, so the runs of one K stand together."""

    def __init__(self, show: Callable[[Any], str], *, accessor: str, samples: str, **kwargs: Any) -> None:
        super().__init__(show, accessor=accessor, **kwargs)
        self.samples = samples

    def render(self, value: float | None, record: Run, table: RunTable) -> str:  # type: ignore[override]
        shown = self.show(value)
        return shown if value is None else f"{shown} of {table.samples[record.pk][self.samples] or 'K'}"

    def order(self, queryset: QuerySet[Run], is_descending: bool) -> tuple[QuerySet[Run], bool]:
        return _by_k(queryset, self.samples, F(self.column), is_descending)


def _by_k(queryset: QuerySet[Run], samples: str, value: Any, is_descending: bool) -> tuple[QuerySet[Run], bool]:
    """Runs without a value last, the largest K first, then by value."""
    keyed = queryset.annotate(best_value=value)
    ordered = F("best_value").desc() if is_descending else F("best_value").asc()
    without = IsNull(F("best_value"), True).asc()
    return keyed.order_by(without, F(f"config__stage__{samples}").desc(), ordered, "-pk"), True


class MetricColumn(tables.Column):
    """Last value and curve of a metric that somebody added to the table. Runs without it sort last."""

    def __init__(self, metric: str) -> None:
        known = definition(metric)
        super().__init__(accessor="latest", empty_values=(), verbose_name=known.title or metric)
        self.metric, self.unit, self.help = metric, known.unit, sentence(known.meaning)

    def render(self, record: Run, table: RunTable) -> str:
        value = record.latest.get(self.metric)
        drawn = ui.spark(list(table.sparklines.get((record.pk, self.metric), ())), self.metric)
        shown = ui.quantity(value, self.unit)
        if value is not None and (samples := SAMPLES.get(self.metric)):
            shown = f"{shown} of {table.samples[record.pk][samples] or 'K'}"
        return format_html('<span class="row nowrap">{} <span class="num">{}</span></span>', drawn, shown)

    def order(self, queryset: QuerySet[Run], is_descending: bool) -> tuple[QuerySet[Run], bool]:
        by = Cast(KeyTextTransform(self.metric, "latest"), FloatField())
        if samples := SAMPLES.get(self.metric):
            return _by_k(queryset, samples, by, is_descending)
        ordered = by.desc(nulls_last=True) if is_descending else by.asc(nulls_last=True)
        return queryset.order_by(ordered, "-pk"), True


ALWAYS = ("select", "name")
METRIC = "metric:"
"""What a column of any metric begins with in `cols=` and `sort=`."""
MAX_METRICS = 8
"""Columns of metrics that were added to one table."""
COLUMN_METRICS = {
    "pass1": "eval/pass1", "best": "eval/best_of_k", "reward": "reward/mean", "best_reward": "reward/best_of_k",
    "loss": "loss/train", "heldout_loss": "loss/heldout", "entropy": "policy/entropy", "staleness": "staleness/mean",
    "trainer_idle": "idle/trainer",
}  # fmt: skip
"""Column → the metric whose last value it shows."""
UNUSUAL = frozenset(
    (
        "best",
        "reward",
        "best_reward",
        "loss",
        "heldout_loss",
        "entropy",
        "staleness",
        "trainer_idle",
        "wall",
        "seed",
        "code_version",
        "notes",
    )
)


class RunTable(ChosenTable):
    always = ALWAYS
    unusual = UNUSUAL
    help: ClassVar = {
        "kind": "Mid-training, supervised fine-tuning, or reinforcement learning.",
        "progress": "Steps done of all, with the estimated time left, or how long the run took.",
        "curve": "Mean reward of each step of RL, training loss of the other stages, with its last value.",
        "policy_in": "Policy and version that the run starts from.",
        **{name: sentence(METRICS[metric].meaning) for name, metric in COLUMN_METRICS.items()},
        "wall": "Wall time from start to end, pauses included.",
        "seed": "Seed of sampling and of the order of tasks.",
        "code_version": "Commit of this product that the run started with.",
    }

    select = TickColumn("run", allows=lambda run: [action.name for action in possible(run)])
    name = tables.Column(linkify=("runs:detail", {"pk": tables.A("pk")}), attrs=STRONG)
    state = StateColumn("run")
    kind = tables.Column(verbose_name="Stage")
    progress = tables.Column(empty_values=(), orderable=False)
    curve = tables.Column(empty_values=(), orderable=False, verbose_name="Reward or loss")
    pass1 = LatestColumn(ui.percent, accessor="pass1", verbose_name="Held-out pass@1")
    policy_in = tables.Column(verbose_name="From", linkify=("policies:detail", {"name": tables.A("policy_in__name")}))
    tags = tables.Column(orderable=False, empty_values=([],), default="")
    best = BestColumn(ui.percent, accessor="best_of_k", samples="eval_samples", verbose_name="Held-out best of K")
    reward = LatestColumn(ui.num, accessor="reward", verbose_name="Reward")
    best_reward = BestColumn(ui.num, accessor="best_reward", samples="group_size", verbose_name="Best-of-K reward")
    loss = LatestColumn(ui.num, accessor="loss", verbose_name="Training loss")
    heldout_loss = LatestColumn(ui.num, accessor="heldout_loss", verbose_name="Held-out loss")
    entropy = LatestColumn(ui.num, accessor="entropy", verbose_name="Entropy")
    staleness = LatestColumn(ui.num, accessor="staleness", verbose_name="Staleness")
    trainer_idle = LatestColumn(ui.percent, accessor="trainer_idle", verbose_name="Trainer idle")
    wall = tables.Column(empty_values=(), orderable=False, verbose_name="Wall time")
    seed = tables.Column()
    code_version = tables.Column(verbose_name="Code", default="–")
    notes = tables.Column(orderable=False, default="", attrs={"td": {"class": "long"}})
    created_by = tables.Column(verbose_name="Created by", default="–")
    created_at = AgoColumn(verbose_name="Created")

    empty_template = "runs/empty.html"

    class Meta:
        model = Run
        fields = (
            "select",
            "name",
            "state",
            "kind",
            "progress",
            "curve",
            "pass1",
            "policy_in",
            "tags",
            "best",
            "reward",
            "best_reward",
            "loss",
            "heldout_loss",
            "entropy",
            "staleness",
            "trainer_idle",
            "wall",
            "seed",
            "code_version",
            "notes",
            "created_by",
            "created_at",
        )
        order_by = ("-created_at",)

    def __init__(self, *args: Any, chosen: Sequence[str] = (), **kwargs: Any) -> None:
        """`metric:NAME` among the chosen columns is a column of any metric."""
        self.metrics = [name for name in dict.fromkeys(chosen) if name.startswith(METRIC)][:MAX_METRICS]
        extra = {name: MetricColumn(name.removeprefix(METRIC)) for name in self.metrics}
        super().__init__(*args, chosen=chosen, extra=extra, **kwargs)

    @property
    def recorded(self) -> list[str]:
        """Metrics that runs of this page have."""
        return sorted({name for row in self.paginated_rows for name in row.record.latest})

    @cached_property
    def sparklines(self) -> dict[tuple[int, str], list[float]]:
        """Curves of the added metrics of this page's runs."""
        names = [name.removeprefix(METRIC) for name in self.metrics]
        return sparklines([row.record.pk for row in self.paginated_rows], names)

    @cached_property
    def samples(self) -> dict[int, dict[str, int | None]]:
        """K of each best of K in this page's runs, whose configurations are not read."""
        shown = Run.objects.filter(pk__in=[row.record.pk for row in self.paginated_rows])
        names = sorted(set(SAMPLES.values()))
        rows = shown.values_list("pk", *(f"config__stage__{name}" for name in names))
        return {pk: dict(zip(names, found, strict=True)) for pk, *found in rows}

    def render_kind(self, record: Run) -> str:
        return record.get_kind_display()

    def render_progress(self, record: Run) -> str:
        eta = eta_seconds(record)
        took = ui.elapsed(record.started_at, record.finished_at) if record.started_at else ""
        note = f"ETA {ui.seconds(eta)}" if eta else took
        return format_html(
            '<span class="meter"><progress max="{}" value="{}"{}></progress>'
            '<span class="between"><span>{} / {}</span><span>{}</span></span></span>',
            record.steps_total,
            record.step,
            DONE if record.state == "finished" else "",
            record.step,
            record.steps_total,
            note,
        )

    def render_curve(self, record: Run) -> str:
        values = record.curve_values
        last = ui.num(values[-1]) if values else ""
        label = "reward" if record.kind == "rl" else "loss"
        return format_html(
            '<span class="row nowrap">{} <span class="num">{}</span></span>', ui.spark(list(values), label), last
        )

    def render_tags(self, value: list[str]) -> str:
        return format_html_join(" ", '<a class="label" href="?tag={}">{}</a>', ((tag, tag) for tag in value))

    def render_wall(self, record: Run) -> str:
        return ui.elapsed(record.started_at, record.finished_at)

    def render_notes(self, value: str) -> str:
        return value if len(value) <= 120 else f"{value[:119]}…"
