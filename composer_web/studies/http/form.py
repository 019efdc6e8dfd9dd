"""The form of a mid-training study: a preset or template for each stage, and the few settings that a study is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from composer_web.core.errors import UserError, worded
from composer_web.core.numbers import ROW_ID, whole
from composer_web.datasets import codebases, corpora
from composer_web.datasets import selectors as datasets
from composer_web.policies import selectors as policies
from composer_web.runs.launch import templates
from composer_web.runs.launch.presets import PRESETS, preset
from composer_web.studies.schemas import StudyIn
from composer_web.tasks import selectors as tasks
from trainer.config import RunConfig

STAGES = ("midtrain", "sft", "rl")
BUILT_IN, EXPERT = ("", "the built-in mixture"), ("", "expert episodes")
OVERRIDES = (
    "midtrain.steps",
    "midtrain.corpus",
    "midtrain.corpus_mixture",
    "sft.dataset",
    "sft.episodes",
    "sft.steps",
    "rl.suite",
    "rl.eval_suite",
    "rl.steps",
)
"""Settings that the form has fields of its own for. Those of `KEEPS` are the preset's while they are empty."""
KEEPS = ("midtrain.steps", "sft.episodes", "sft.steps", "rl.suite", "rl.eval_suite", "rl.steps")
NONE = "-"
"""Choice of no evaluation suite."""

Choice = tuple[str, str]


@dataclass(frozen=True)
class Options:
    """What the lists of the form offer, as (value, label)."""

    policies: Sequence[Choice]
    corpora: Sequence[Choice]
    codebases: Sequence[Choice]
    datasets: Sequence[Choice]
    suites: Sequence[Choice]
    eval_suites: Sequence[Choice]
    midtrain: Sequence[Choice]
    sft: Sequence[Choice]
    rl: Sequence[Choice]


def options() -> Options:
    kept = [(template, str(template.config["stage"]["kind"])) for template in templates.templates()]

    def starts(kind: str) -> list[Choice]:
        own = [(str(template.pk), f"Template: {template.name}") for template, of in kept if of == kind]
        return [(one.key, one.title) for one in PRESETS if one.config.stage.kind == kind] + own

    def plain(names: Sequence[str]) -> list[Choice]:
        return [(name, name) for name in names]

    known = corpora.known()
    suites = plain([suite.name for suite in tasks.suites()])
    return Options(
        policies=plain(policies.references()),
        corpora=[BUILT_IN, *plain(known.prepared)],
        codebases=[("", "none: held-out data of SFT"), *plain(codebases.of_runs(known))],
        datasets=[EXPERT, *plain(datasets.names())],
        suites=[("", "as the preset has it"), *suites],
        eval_suites=[("", "as the preset has it"), (NONE, "none"), *suites],
        midtrain=starts("midtrain"),
        sft=starts("sft"),
        rl=starts("rl"),
    )


def initial(policy: str = "") -> dict[str, str]:
    """Values of an empty form: the toy's presets where only the toy is registered."""
    toy = policies.only_toys()
    chosen = {"midtrain": "midtrain-toy", "sft": "sft-toy", "rl": "rl-toy"} if toy else {}
    chosen = chosen or {"midtrain": "midtrain", "sft": "sft-expert", "rl": "real-small"}
    start = policy or RunConfig.model_fields["policy"].default
    return {"name": "Mid-training study", "seeds": "0, 1, 2", "policy": start, "midtrain.steps": "60", **chosen}


def read(given: Mapping[str, str]) -> StudyIn:
    """Raises UserError with a message for each wrong field."""
    stages = {kind: _start(kind, given.get(kind, "")) for kind in STAGES}
    for path in OVERRIDES:
        kind, _, name = path.partition(".")
        value = given.get(path, "").strip()
        if value or path not in KEEPS:
            stages[kind][name] = None if value == NONE else value
    wanted = {
        "name": given.get("name", "").strip(),
        "policy": given.get("policy", ""),
        "codebase": given.get("codebase", ""),
        "seeds": [part.strip() for part in given.get("seeds", "").split(",") if part.strip()],
        **stages,
    }
    try:
        return StudyIn.model_validate(wanted)
    except ValidationError as error:
        fields: dict[str, str] = {}
        for item in error.errors(include_url=False):
            path = ".".join(str(part) for part in item["loc"])
            fields.setdefault("seeds" if path.startswith("seeds") else path, worded(item, secrets=False))
        first = next(iter(fields))
        raise UserError(first, fields[first], fields=fields) from error


def _start(kind: str, key: str) -> dict[str, Any]:
    """Settings of a stage as a preset or template has them. Raises UserError, NotFound."""
    if (pk := whole(key, digits=ROW_ID)) is not None:
        stage: dict[str, Any] = dict(templates.get_template(pk).config["stage"])
    elif (found := preset(key)) is not None:
        stage = found.config.stage.model_dump(mode="json")
    else:
        raise UserError(kind, f"there is no preset {key!r}; choose one of the list")
    if stage["kind"] != kind:
        raise UserError(kind, f"{key!r} is a preset of another stage; choose one of the list")
    return stage
