"""Configuration of rewards and of the monitors that watch rollouts."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from trainer.config.parts import Part, setting


class LengthWeights(Part):
    """Weight of each kind of effort in the length penalty's x."""

    thinking_tokens: float = setting(1.0, "Weight of a thinking token", ge=0)
    calling_tokens: float = setting(1.0, "Weight of a token of a turn that calls tools", ge=0)
    output_tokens: float = setting(0.1, "Weight of a token of tool output that the policy reads", ge=0)
    final_tokens: float = setting(1.0, "Weight of a token of a message without calls", ge=0)
    calls: float = setting(1.0, "Weight of a tool call", ge=0)
    turns: float = setting(5.0, "Weight of a turn: parallel calls in one turn are cheaper", ge=0)


ASPECT = re.compile(r"(?P<name>[a-z][a-z-]{0,29})(?:\s+(?P<weight>\d+(?:\.\d+)?))?\s*:\s*(?P<question>\S.*)")


class RubricAspect(NamedTuple):
    name: str
    weight: float
    question: str


class BehaviourConfig(Part):
    """Auxiliary rewards for how the work is done; a weight of 0 turns one off."""

    unfinished_todos: float = setting(0.0, "Weight of the share of to-do items left unfinished", ge=0)
    poor_calls: float = setting(0.0, "Weight of the share of calls that fail or repeat the last", ge=0)
    style: float = setting(0.0, "Weight of the share of added lines with a fault of style", ge=0)
    communication: float = setting(0.0, "Weight of a closing message that is missing, too long or a question", ge=0)
    rubric: float = setting(0.0, "Weight of a language model's grades, where one is configured", ge=0)
    rubric_text: str = setting(
        "",
        "What it grades, an aspect a line, as “tests 2: Are the tests worth keeping?” (2 is its weight, 1 when left out); "
        "empty for the built-in aspects",
        advanced=True,
        lines=True,
        max_length=20_000,
    )
    rubric_highest: int = setting(4, "Highest grade of an aspect", ge=1, le=10, advanced=True)

    @property
    def aspects(self) -> tuple[RubricAspect, ...]:
        """Parse `rubric_text`. Raises ValueError naming the line."""
        found = []
        for number, line in enumerate(self.rubric_text.splitlines(), 1):
            if not line.strip():
                continue
            match = ASPECT.fullmatch(line.strip())
            if match is None or float(match["weight"] or 1) == 0:
                raise ValueError(
                    f"rubric_text, line {number}: {line.strip()[:60]!r} is not “name weight: question” (a name of small "
                    "letters and -, a weight above 0 or none)"
                )
            found.append(RubricAspect(match["name"], float(match["weight"] or 1), match["question"]))
        if len({aspect.name for aspect in found}) < len(found):
            raise ValueError("rubric_text names an aspect twice; give each another name")
        return tuple(found)

    @model_validator(mode="after")
    def _rubric(self) -> BehaviourConfig:
        if self.rubric_text.strip():
            _ = self.aspects
        return self


class RewardConfig(Part):
    tests_weight: float = setting(1.0, "Reward when every hidden test passes")
    require_finish: bool = setting(
        True, "A passing patch counts only if the policy ended the episode itself", advanced=True
    )
    length_coefficient: float = setting(0.0, "λ of the length penalty λ·C(x); 0 turns it off", ge=0)
    length_k: float = setting(0.01, "Curvature k of C(x)", gt=0, advanced=True)
    length_q: float = setting(0.5, "Curvature q of C(x)", ge=0, advanced=True)
    length_weights: LengthWeights = Field(default_factory=LengthWeights)
    behaviour: BehaviourConfig = Field(default_factory=BehaviourConfig)
    visible_weight: float = setting(
        0.0, "Reward when the command below succeeds in the policy's own checkout; it can be gamed", ge=0, advanced=True
    )
    visible_command: str = setting("python run_tests.py", "Command of that reward", advanced=True)
    extra: str = setting(
        "",
        "Parts of your own with their weights: name=0.1, other=0.05",
        advanced=True,
        pattern=r"^\s*([\w-]+\s*=\s*-?[\d.]+\s*(,\s*[\w-]+\s*=\s*-?[\d.]+\s*)*)?$",
    )

    @property
    def extra_weights(self) -> dict[str, float]:
        pairs = (part.partition("=") for part in self.extra.split(",") if part.strip())
        return {name.strip(): float(weight) for name, _, weight in pairs}

    @model_validator(mode="after")
    def _weights(self) -> RewardConfig:
        try:
            named = self.extra_weights
        except ValueError as error:
            raise ValueError(f"extra={self.extra!r}: write name=weight, separated by commas") from error
        if len(named) < self.extra.count("="):
            raise ValueError(f"extra={self.extra!r} names a part twice")
        return self


class MonitorsConfig(Part):
    """Monitors for rollouts, and what a finding may trigger automatically. Users can undo every automatic action."""

    audit: bool = setting(True, "Read every trajectory by the auditor's rules before it is trained on")
    quarantine: Literal["high", "medium", "low", "never"] = setting(
        "high", "Findings from this severity on keep a passed rollout out of training; a failed one keeps its loss"
    )
    ignored_rules: str = setting("", "Rules that never quarantine, separated by commas", advanced=True)
    task_after: int = setting(
        4, "A task is set aside once so many of its rollouts are in quarantine; 0 never", ge=0, advanced=True
    )
    pause_share: float = setting(
        0.5, "Pause the run when more than this share of its last rollouts is in quarantine; 1 never", gt=0, le=1
    )
    pause_window: int = setting(64, "How many last rollouts that share is of", gt=0, advanced=True)
    drift: bool = setting(True, "Watch how rollouts work from step to step, and say when that changes")
    drift_pauses: bool = setting(False, "Such a change pauses the run", advanced=True)
    judge_share: float = setting(
        0.0, "Share of rollouts that a language model reads as well, where one is configured", ge=0, le=1, advanced=True
    )

    @property
    def ignored(self) -> frozenset[str]:
        return frozenset(name for part in self.ignored_rules.split(",") if (name := part.strip()))
