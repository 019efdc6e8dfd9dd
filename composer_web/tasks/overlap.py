"""Content overlap of suites with the tasks in the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.tasks.models import TaskVersion
from sandbox.errors import TaskError
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.overlap import Print, TasksOverlap, built_pristine, duplicates, overlap, print_of, refuse
from sandbox.tasks.spec import TaskSpec


def store() -> EnvironmentStore:
    return EnvironmentStore(env().data / "environments")


def prints(specs: Iterable[TaskSpec]) -> list[Print]:
    """Prints of tasks outside the procedural family. Splits of that family share no structure by construction."""
    environments = store()

    def read(digest: str, path: str) -> str:
        try:
            file = environments.repository(digest) / path
            return file.read_text(encoding="utf-8") if file.is_file() and not file.is_symlink() else ""
        except (TaskError, UnicodeDecodeError):
            return ""  # an environment that is not here any more: its tasks are compared by what they carry

    begin = built_pristine(read)
    return [print_of(spec, begin) for spec in specs if spec.source != "procedural"]


def drop_duplicates(specs: Sequence[TaskSpec]) -> list[TaskSpec]:
    """The tasks without those that are nearly the same as one before them."""
    gone = {pair.first for pair in duplicates(prints(specs))}
    return [spec for spec in specs if spec.id not in gone]


def refuse_overlap(specs: Sequence[TaskSpec], *, purpose: str) -> None:
    """Raises UserError when tasks are nearly the same as each other, or as some on the other side of a split, or are on both
    sides themselves."""
    ours = prints(specs)
    if not ours:
        return
    others = TaskVersion.objects.exclude(task__source="procedural").filter(suites__isnull=False)
    training = {"suites__purpose": "train", "suites__retired_at": None}
    sided = others.exclude(suites__purpose="train") if purpose == "train" else others.filter(**training)
    same = sided.filter(task__slug__in=[one.id for one in ours]).order_by("task__slug")
    if both := same.values_list("task__slug", "suites__name").first():
        raise UserError(
            "tasks", f"{both[0]} is in suite {both[1]!r}, on the other side of the split; take it out there first"
        )
    bundles = sided.distinct().values_list("spec", flat=True)
    theirs = prints(TaskSpec.model_validate(spec) for spec in bundles)
    try:
        refuse(duplicates(ours), "tasks of this suite are nearly the same")
        found = overlap(ours, theirs) if purpose == "train" else overlap(theirs, ours)
        refuse(found, "tasks for training and held-out ones overlap")
    except TasksOverlap as error:
        raise UserError("tasks", str(error)) from error
