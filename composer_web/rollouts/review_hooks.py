"""What rollouts ask the app `review`, which is built on them and installs itself in `AppConfig.ready`.

Labels exclude tasks, hold groups back and change rewards, and reviewers do not see what others' labels did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from django.db.models import Exists, Q, QuerySet

from composer_web.accounts.models import User
from composer_web.rollouts.models import Group, Rollout
from composer_web.runs.models import Run
from trainer.config import LabelsConfig
from trainer.types import Trajectory


class Review(Protocol):
    def excluded_versions(self, labels: LabelsConfig) -> set[int]:
        """Task versions that labels exclude from new prompts."""
        ...

    def ask(self, group: Group) -> None:
        """Put the rollouts of an accepted group into the queue that its run is paid by."""
        ...

    def awaited(self, run: Run) -> set[int]:
        """Accepted groups that wait for reviewers."""
        ...

    def paid(self, group: Group, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """The trajectories with the reward part that reviewers give."""
        ...

    def visible_findings(self) -> Q | Exists:
        """Condition on findings that the request may see."""
        ...

    def visible_quarantines(self, column: str) -> Any:
        """Condition on rows whose `column` is a rollout with a quarantine that the request may see."""
        ...

    def labelled_rollouts(self, query: QuerySet[Rollout], text: str) -> QuerySet[Rollout]:
        """Rollouts with the label `queue:question=value`, or with any of `queue`."""
        ...

    def annotated_rollouts(self, query: QuerySet[Rollout], text: str) -> QuerySet[Rollout]:
        """Rollouts with an annotation such as `verdict=bad`, `tag=x`, `needs_review`; `none`: without any."""
        ...

    def sheet(self, rollout: Rollout, user: User, *, hidden: bool = False) -> Any:
        """Annotations of a rollout for its page; with `hidden` only the user's own."""
        ...


_installed: list[Review] = []


def install(hooks: Review) -> None:
    _installed[:] = [hooks]


def review() -> Review:
    assert _installed, "the app review installs its hooks when Django starts"
    return _installed[0]
