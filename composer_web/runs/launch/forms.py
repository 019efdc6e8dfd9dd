"""The run form: fields from the RunConfig schema, initial values from a preset, a parent run or a POST, errors per
field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from composer_web.runs.launch import basic
from composer_web.runs.launch.schema_form import FormField, Group, field_errors, flatten, form_schema, label_of, nest
from composer_web.runs.launch.sweeps import NOT_SWEPT
from trainer.config import MidtrainConfig, RLConfig, RunConfig, SFTConfig

SCHEMA = form_schema(RunConfig)
STAGES = {
    "midtrain": ("Mid-training", "Next-token training on a prepared corpus, or on Python source and copying drills"),
    "sft": ("SFT", "Supervised training on conversations and good rollouts, or on scripted expert trajectories"),
    "rl": ("RL", "Reinforcement learning over whole episodes, graded by hidden tests"),
}


@dataclass(frozen=True)
class BoundField:
    field: FormField
    value: str
    errors: Sequence[str]
    before: str | None = None
    """Value in the preset or run that filled the form, if it differs."""

    @property
    def basic(self) -> bool:
        """Whether the Basic view shows it."""
        return self.field.name in basic.NAMES

    @property
    def swept(self) -> str:
        """Name of the setting in a sweep: without the stage's kind. Empty for what a sweep cannot vary."""
        first, _, rest = self.field.name.partition(".")
        path = f"stage.{rest.partition('.')[2]}" if first == "stage" else self.field.name
        return "" if path in NOT_SWEPT or self.field.widget == "lines" else path


@dataclass(frozen=True)
class Change:
    """A setting that differs from the preset or run that filled the form."""

    name: str
    label: str
    before: str
    after: str


@dataclass(frozen=True)
class BoundGroup:
    """A field group ready for its template: a section of the Advanced view."""

    name: str
    label: str
    help: str
    fields: Sequence[BoundField]
    groups: Sequence[BoundGroup]

    @property
    def anchor(self) -> str:
        return f"s-{self.name or 'run'}"


@dataclass(frozen=True)
class BoundStage:
    kind: str
    label: str
    help: str
    group: BoundGroup
    errors: Sequence[str]


def default_values() -> dict[str, str]:
    """Values of every field of every stage in an empty form."""
    values: dict[str, str] = {}
    for stage in (MidtrainConfig(), SFTConfig(), RLConfig()):
        values |= flatten(SCHEMA, RunConfig(name="new run", stage=stage))
    return {**values, "name": ""}


class RunForm:
    """`options` lists what the control plane knows for a free-text field, by its full name (`{"policy": ["base"], ...}`).

    `initial` fills the fields; `base` is what changes are told against.
    """

    def __init__(
        self,
        posted: Mapping[str, str] | None = None,
        *,
        initial: RunConfig | None = None,
        base: RunConfig | None = None,
        options: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.options = options or {}
        self.base = default_values() | (flatten(SCHEMA, base) if base else {})
        self.values = default_values() | (flatten(SCHEMA, initial) if initial else {})
        self.errors: dict[str, list[str]] = {}
        self.config: RunConfig | None = None
        if posted is not None:
            checks = {name: "" for name, item in SCHEMA.by_name.items() if item.widget == "check"}
            stage = posted.get("stage", "")
            self.values |= {n: v for n, v in checks.items() if n.startswith(f"stage.{stage}.")}
            self.values |= {name: posted[name] for name in (*SCHEMA.by_name, "stage") if name in posted}
            try:
                self.config = RunConfig.model_validate(nest(SCHEMA, posted))
            except ValidationError as error:
                self.errors = field_errors(SCHEMA, error)
        self._changes = {change.name: change for change in self.changes}

    @property
    def changes(self) -> list[Change]:
        """Settings of the chosen stage that differ from `base`. The name is expected to differ."""
        shown = self.values | (flatten(SCHEMA, self.config) if self.config else {})
        names = [
            "stage",
            *(
                n
                for n in SCHEMA.by_name
                if n != "name" and (not n.startswith("stage.") or n.startswith(f"stage.{self.stage}."))
            ),
        ]
        return [
            Change(name, label_of(name), self.base.get(name, ""), shown.get(name, ""))
            for name in names
            if shown.get(name, "") != self.base.get(name, "")
        ]

    @property
    def wrong(self) -> list[tuple[str, str]]:
        """Fields with errors, as (name, label)."""
        return [(name, label_of(name) or "Run") for name in self.errors]

    def refuse(self, name: str, message: str) -> None:
        """Add an error that only the control plane can detect, such as an unknown policy."""
        self.errors.setdefault(name, []).append(message)

    @property
    def stage(self) -> str:
        return self.values.get("stage", "rl")

    @property
    def top(self) -> BoundGroup:
        return self._bind(replace(SCHEMA.root, label="Run"))

    @property
    def stages(self) -> list[BoundStage]:
        (choice,) = SCHEMA.choices
        return [
            BoundStage(
                kind, *STAGES[kind], self._bind(replace(group, label=STAGES[kind][0])), self.errors.get(group.name, ())
            )
            for kind, group in choice.variants.items()
        ]

    @property
    def advanced(self) -> bool:
        """Whether an error is at a setting that the Basic view does not show."""
        return any(name in SCHEMA.by_name and name not in basic.NAMES for name in self.errors)

    @property
    def unplaced(self) -> list[str]:
        """Errors that belong to no field on the page."""
        placed = {*SCHEMA.by_name, *(g.name for c in SCHEMA.choices for g in c.variants.values())}
        return [message for name, messages in self.errors.items() if name not in placed for message in messages]

    def _bind(self, group: Group) -> BoundGroup:
        bound = [self._bind_field(item) for item in group.fields]
        return BoundGroup(
            name=group.name,
            label=group.label,
            help=group.help,
            fields=bound,
            groups=[self._bind(inner) for inner in group.groups],
        )

    def _bind_field(self, item: FormField) -> BoundField:
        known = tuple(self.options.get(item.name, ()))
        change = self._changes.get(item.name)
        return BoundField(
            replace(item, choices=item.choices or known),
            self.values.get(item.name, ""),
            self.errors.get(item.name, ()),
            change.before if change else None,
        )
