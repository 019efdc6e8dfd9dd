"""What people say of a run's rollouts in review queues, and what that does to the run."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import model_validator

from trainer.config.parts import Part, setting

RULE = r"[a-z0-9][a-z0-9_-]{0,79}:\w{1,40}=[\w-]{1,40}"
RULES = rf"^\s*({RULE}\s*(,\s*{RULE}\s*)*)?$"


class LabelRule(NamedTuple):
    """An answer to a question of a review queue, as in the filter of the rollouts page."""

    queue: str
    question: str
    value: str


class LabelsConfig(Part):
    """An answer counts once a rollout has all its reviewers and more than half of them gave it."""

    exclude: str = setting(
        "",
        "Answers that keep a rollout out of training: queue:question=value, separated by commas; "
        "annotations:verdict=bad and annotations:tag=name are those set on a trajectory's page",
        pattern=RULES,
        advanced=True,
    )
    exclude_tasks: str = setting(
        "",
        "Answers about any rollout of a task, in whichever run, that keep the task from being dispatched here",
        pattern=RULES,
        advanced=True,
    )
    reward: str = setting(
        "",
        "Question that is a reward from 0 to 1: queue:question. The run's rollouts join that queue by themselves, and a "
        "group is trained on once its rollouts have their reviewers or the queue is closed",
        pattern=r"^([a-z0-9][a-z0-9_-]{0,79}:\w{1,40})?$",
        advanced=True,
    )
    reward_weight: float = setting(1.0, "Weight of that reward part, which is called `label`", advanced=True)

    @model_validator(mode="after")
    def _weight(self) -> LabelsConfig:
        if self.reward and not self.reward_weight:
            raise ValueError(
                f"reward_weight=0 makes groups wait for {self.reward!r} and pays nothing; leave reward empty"
            )
        return self

    @property
    def excluded(self) -> tuple[LabelRule, ...]:
        return _rules(self.exclude)

    @property
    def excluded_tasks(self) -> tuple[LabelRule, ...]:
        return _rules(self.exclude_tasks)

    @property
    def paid(self) -> tuple[str, str] | None:
        """Queue and question of the reward."""
        queue, _, question = self.reward.partition(":")
        return (queue, question) if queue else None


def _rules(text: str) -> tuple[LabelRule, ...]:
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        queue, _, answer = part.partition(":")
        question, _, value = answer.partition("=")
        found.append(LabelRule(queue, question, value))
    return tuple(found)
