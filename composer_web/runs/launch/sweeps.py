"""Sweeps: runs of one configuration with several values for named fields, created all together or not at all."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from django.db import transaction
from django.db.models import Count, Q, QuerySet

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import NotFound, UserError
from composer_web.live.hints import hint
from composer_web.runs import services
from composer_web.runs.flatten import flat
from composer_web.runs.models import RUN_FINAL, RUN_LIVE, Run, Sweep, SweepMode
from trainer.config import RunConfig

MAX_RUNS = 64
MAX_FIELDS = 6
NAME_ROOM = 80
NOT_SWEPT = ("name", "stage.kind")

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Point:
    """One run of a sweep before its creation."""

    values: tuple[Value, ...]
    config: RunConfig | None
    errors: Mapping[str, str]
    """Field → error from the model or the control plane. Empty if the run can start."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preview:
    fields: tuple[str, ...]
    points: tuple[Point, ...]

    @property
    def ok(self) -> bool:
        return not any(point.errors for point in self.points)


def parse_fields(text: str) -> dict[str, list[Value]]:
    """Lines of `stage.optimizer.learning_rate: 1e-4, 3e-4` (or a YAML list). Raises UserError naming the line."""
    found: dict[str, list[Value]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, rest = (part.strip() for part in line.partition(":"))
        if not separator or not rest:
            raise UserError("fields", f"line {number}: write a field and its values, such as `stage.steps: 20, 40`")
        if name in found:
            raise UserError("fields", f"line {number}: {name} is listed twice")
        try:
            values = yaml.safe_load(rest if rest.startswith("[") else f"[{rest}]")
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise UserError(
                "fields", f"line {number}: {rest!r} is no list of values; separate them by commas"
            ) from error
        found[name] = [_number(value) for value in values]
    return found


def _number(value: Value) -> Value:
    """Parse `1e-4` as the number that the user means; YAML reads it as a string."""
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


def check_fields(config: RunConfig, fields: Mapping[str, Sequence[Value]], mode: str) -> dict[str, list[Value]]:
    """The fields with their values, or UserError: unknown names, repeats, lists of unequal length, too many runs."""
    if mode not in SweepMode.values:
        raise UserError("mode", f"a sweep is a {' or a '.join(SweepMode.values)}, not {mode!r}")
    if not fields:
        raise UserError(
            "fields", "name at least one field to vary, such as `stage.optimizer.learning_rate: 1e-4, 3e-4`"
        )
    if len(fields) > MAX_FIELDS:
        raise UserError("fields", f"at most {MAX_FIELDS} fields can vary at once, not {len(fields)}")
    known = [name for name in flat(config.model_dump(mode="json")) if name not in NOT_SWEPT]
    for name, values in fields.items():
        if name not in known:
            raise UserError(
                "fields", f"there is no field {name!r} to vary; fields are written as {', '.join(known[2:6])}"
            )
        if not isinstance(values, list | tuple) or not values:
            raise UserError("fields", f"{name}: give at least one value")
        if any(not isinstance(value, str | int | float | bool | None) for value in values):
            raise UserError("fields", f"{name}: values are numbers, words, true, false or null")
        if any(isinstance(value, float) and not math.isfinite(value) for value in values):
            raise UserError("fields", f"{name}: a number is missing its digits: NaN and infinity are none")
        if mode == SweepMode.GRID and len({repr(value) for value in values}) < len(values):
            raise UserError("fields", f"{name}: a value is listed twice")
    lengths = {name: len(values) for name, values in fields.items()}
    if mode == SweepMode.LIST and len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise UserError("fields", f"a list needs as many values of each field: {found}")
    count = 1
    for length in lengths.values():
        count = count * length if mode == SweepMode.GRID else length
    if count > MAX_RUNS:
        raise UserError("fields", f"these would be {count} runs; a sweep has at most {MAX_RUNS}: give fewer values")
    return {name: list(values) for name, values in fields.items()}


def preview(config: RunConfig, fields: Mapping[str, Sequence[Value]], mode: str) -> Preview:
    """Every run that the sweep would create, each checked like a single run. Raises UserError."""
    checked = check_fields(config, fields, mode)
    combinations = (
        itertools.product(*checked.values()) if mode == SweepMode.GRID else zip(*checked.values(), strict=True)
    )
    base = config.model_dump(mode="json")
    return Preview(tuple(checked), tuple(_point(base, tuple(checked), values) for values in combinations))


def _point(base: dict[str, Any], names: tuple[str, ...], values: tuple[Value, ...]) -> Point:
    data: dict[str, Any] = _set_all(base, dict(zip(names, values, strict=True)))
    data["name"] = run_name(base["name"], names, values)
    try:
        config = services.parse_config(data)
        return Point(values, config, {}, tuple(services.check_config(config)))
    except UserError as error:
        return Point(values, None, error.fields or {"": error.message})


def _set_all(base: Mapping[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    """Copy of `base` with the dotted fields set. `check_fields` has verified that they exist."""
    out = {key: _set_all(value, {}) if isinstance(value, Mapping) else value for key, value in base.items()}
    for path, value in values.items():
        *tables, last = path.split(".")
        node = out
        for table in tables:
            node = node[table]
        node[last] = value
    return out


def run_name(base: str, names: Sequence[str], values: Sequence[Value]) -> str:
    """`base lr=0.001 seed=2`: the varied values in characters allowed in a run name, at most 80."""
    parts = []
    for name, value in zip(names, values, strict=True):
        shown = "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        plain = "".join(letter if letter.isalnum() or letter in " .:/+-_" else "_" for letter in shown)
        parts.append(f"{name.rpartition('.')[2]} {plain}")
    tail = " ".join(parts)
    if len(tail) >= NAME_ROOM - 8:
        tail = tail[: NAME_ROOM - 9].rstrip()
    return f"{base[: NAME_ROOM - 1 - len(tail)].rstrip()} {tail}"


@transaction.atomic
def create_sweep(
    *,
    config: RunConfig,
    fields: Mapping[str, Sequence[Value]],
    mode: str = SweepMode.GRID,
    parent: Run | None = None,
    start: bool = False,
    actor: User | None = None,
) -> Sweep:
    """Create all runs of a sweep, as drafts or queued in order. Raises UserError if any run cannot work."""
    found = preview(config, fields, mode)
    for number, point in enumerate(found.points, 1):
        if point.errors:
            field, message = next(iter(point.errors.items()))
            raise UserError(field, f"run {number} of {len(found.points)}: {message}", fields=dict(point.errors))
    sweep = Sweep.objects.create(
        name=config.name, mode=mode, fields=[[name, list(values)] for name, values in fields.items()], created_by=actor
    )
    audit(
        actor=actor, action="sweep.create", target=f"sweep:{sweep.pk}", name=sweep.name, mode=mode, fields=sweep.varied
    )
    for point in found.points:
        assert point.config is not None, "points without errors have a configuration"
        run = services.create_run(config=point.config, actor=actor, parent=parent, sweep=sweep)
        if start:
            services.start_run(run=run, actor=actor)
    hint("runs")
    return sweep


def sweeps() -> QuerySet[Sweep]:
    """Sweeps for lists, with `run_count`, `live_count` and `ended_count`."""
    rows = Sweep.objects.select_related("created_by").annotate(
        run_count=Count("runs"),
        live_count=Count("runs", filter=Q(runs__state__in=RUN_LIVE)),
        ended_count=Count("runs", filter=Q(runs__state__in=RUN_FINAL)),
    )
    return rows.order_by("-pk")  # grouped queries have no order of their own


def get_sweep(pk: int) -> Sweep:
    """Raises NotFound."""
    found = sweeps().filter(pk=pk).first()
    if found is None:
        raise NotFound("sweep", pk)
    return found


def members(sweep: Sweep) -> list[Run]:
    """Runs of the sweep in creation order. `varied` has each run's value of every swept field."""
    runs = list(Run.objects.filter(sweep=sweep).select_related("policy_in", "policy_out").order_by("pk"))
    for run in runs:
        table = flat(run.config)
        run.varied = [table.get(name) for name in sweep.varied]  # type: ignore[attr-defined]
    return runs
