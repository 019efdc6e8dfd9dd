"""Triggers of tasks: what reviews admit, what lists show of a task's newest version, and the counts of suites.

Locks of the task's row make simultaneous reviews see each other.
"""

from __future__ import annotations

from textwrap import dedent

import pgtrigger
from django.db import models

from composer_web.core.triggers import Trigger

Q = pgtrigger.Q


class SettlesReview(Trigger):
    """Set the state that follows from the reviews of `version`, when that is the task's newest."""

    name = "settle"
    when = pgtrigger.After
    operation = pgtrigger.Insert

    def __init__(self, version: str, *, condition: pgtrigger.Condition | None = None) -> None:
        super().__init__(condition=condition)
        self.version = version

    def get_func(self, model: models.Model) -> str:
        return f"""
            UPDATE tasks_task t SET review = opencomposer_review_state(v.id)
            FROM tasks_taskversion v WHERE v.id = NEW.{self.version} AND t.id = v.task_id
                AND NOT EXISTS (SELECT 1 FROM tasks_taskversion n WHERE n.task_id = v.task_id AND n.number > v.number)
                AND t.review <> opencomposer_review_state(v.id);
            RETURN NULL;
        """  # noqa: S608 (names that stand here)


BEFORE_REVIEW = Trigger(
    name="before",
    when=pgtrigger.Before,
    operation=pgtrigger.Insert,
    func="""
        PERFORM 1 FROM tasks_task t JOIN tasks_taskversion v ON v.task_id = t.id WHERE v.id = NEW.task_version_id
            FOR NO KEY UPDATE OF t;
        IF EXISTS (SELECT 1 FROM tasks_taskversion WHERE id = NEW.task_version_id AND author_id = NEW.reviewer_id) THEN
            RAISE EXCEPTION 'the author of version % may not review it', NEW.task_version_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    """,
)
ADMITTED_MEMBER = Trigger(
    name="admitted",
    when=pgtrigger.Before,
    operation=pgtrigger.Insert | pgtrigger.UpdateOf("suite_id", "task_version_id"),
    func="""
        IF EXISTS (SELECT 1 FROM tasks_suite WHERE id = NEW.suite_id AND reviewed)
           AND opencomposer_review_state(NEW.task_version_id) <> 'admitted' THEN
            RAISE EXCEPTION 'version % was not admitted by two reviewers', NEW.task_version_id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    """,
)
REVIEWED_SUITE = Trigger(
    name="reviewed",
    when=pgtrigger.Before,
    operation=pgtrigger.UpdateOf("reviewed"),
    condition=Q(old__reviewed__df=pgtrigger.F("new__reviewed")),
    func="""
        IF OLD.reviewed AND NOT NEW.reviewed THEN
            RAISE EXCEPTION 'suite % stays reviewed', OLD.id USING ERRCODE = 'check_violation';
        END IF;
        IF EXISTS (SELECT 1 FROM tasks_suitemembership WHERE suite_id = NEW.id
                   AND opencomposer_review_state(task_version_id) <> 'admitted') THEN
            RAISE EXCEPTION 'suite % has versions that were not admitted', OLD.id USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    """,
)

# Another version is another task to a policy: what its predecessor showed says nothing of it.
NEWEST_VERSION = Trigger(
    name="newest",
    when=pgtrigger.After,
    operation=pgtrigger.Insert | pgtrigger.UpdateOf("controls_ok", "test_strength"),
    func="""
        UPDATE tasks_task SET newest_version_id = NEW.id, newest_number = NEW.number, controls_ok = NEW.controls_ok,
                              test_strength = NEW.test_strength,
            pass_rate = CASE WHEN newest_version_id = NEW.id THEN pass_rate END
        WHERE id = NEW.task_id AND (newest_number IS NULL OR newest_number <= NEW.number);
        RETURN NULL;
    """,
)
PASS_RATE = Trigger(
    name="pass_rate",
    when=pgtrigger.After,
    operation=pgtrigger.Insert | pgtrigger.Update,
    func="""
        UPDATE tasks_task SET pass_rate = NEW.passed::float8 / NEW.samples
        WHERE newest_version_id = NEW.task_version_id AND NOT EXISTS (
            SELECT FROM tasks_taskstatistic later
            WHERE later.task_version_id = NEW.task_version_id AND (later.measured_at, later.id) > (NEW.measured_at, NEW.id));
        RETURN NULL;
    """,
)
TASK_OF_MEMBER = Trigger(
    name="task",
    when=pgtrigger.Before,
    operation=pgtrigger.Insert | pgtrigger.UpdateOf("task_version_id"),
    func="""
        SELECT t.id, t.slug INTO NEW.task_id, NEW.slug FROM tasks_taskversion v JOIN tasks_task t ON t.id = v.task_id
        WHERE v.id = NEW.task_version_id;
        RETURN NEW;
    """,
)


class Renamed(Trigger):
    """Copy the new name of a task with the statement `func` to where lists sort by it."""

    when = pgtrigger.After
    operation = pgtrigger.UpdateOf("slug")
    condition = ~Q(old__slug=pgtrigger.F("new__slug"))

    def get_func(self, model: models.Model) -> str:
        return f"{super().get_func(model)}\nRETURN NULL;"


NAME_OF_MEMBERS = Renamed(
    name="renamed", func="UPDATE tasks_suitemembership SET slug = NEW.slug WHERE task_id = NEW.id;"
)
NAME_IN_FINDINGS = Renamed(
    name="renamed_in_findings",
    func="UPDATE rollouts_finding f SET slug = NEW.slug FROM tasks_taskversion v"
    " WHERE v.task_id = NEW.id AND f.task_version_id = v.id;",
)


class CountsMembers(Trigger):
    """Add the rows of the transition table `came` to the counts of their suites, and subtract those of `gone`.

    A version that joins is held until the transaction ends: its controls, if somebody records them meanwhile, are counted
    by whoever comes second, who then sees what the first has done.
    """

    level = pgtrigger.Statement
    when = pgtrigger.After

    def get_func(self, model: models.Model) -> str:
        assert self.referencing is not None
        came = self._counted("came", "+") if self.referencing.new else ""
        gone = self._counted("gone", "-") if self.referencing.old else ""
        return f"{came}{gone}RETURN NULL;"

    @staticmethod
    def _counted(members: str, sign: str) -> str:
        return dedent(f"""\
            PERFORM 1 FROM tasks_taskversion WHERE id IN (SELECT task_version_id FROM {members}) ORDER BY id FOR SHARE;
            UPDATE tasks_suite s SET task_count = s.task_count {sign} c.tasks, valid_count = s.valid_count {sign} c.valid,
                                     rejected_count = s.rejected_count {sign} c.rejected
            FROM (SELECT m.suite_id, count(*) AS tasks, count(*) FILTER (WHERE v.controls_ok) AS valid,
                         count(*) FILTER (WHERE NOT v.controls_ok) AS rejected
                  FROM {members} m JOIN tasks_taskversion v ON v.id = m.task_version_id GROUP BY m.suite_id) c
            WHERE c.suite_id = s.id;
        """)  # noqa: S608 (names that stand here)


COUNTS_OF_MEMBERS = [
    CountsMembers(name="came", operation=pgtrigger.Insert, referencing=pgtrigger.Referencing(new="came")),
    CountsMembers(name="gone", operation=pgtrigger.Delete, referencing=pgtrigger.Referencing(old="gone")),
    CountsMembers(
        name="changed", operation=pgtrigger.Update, referencing=pgtrigger.Referencing(old="gone", new="came")
    ),
]
COUNTS_OF_CONTROLS = Trigger(
    name="controls",
    when=pgtrigger.After,
    operation=pgtrigger.UpdateOf("controls_ok"),
    condition=Q(old__controls_ok__df=pgtrigger.F("new__controls_ok")),
    func="""
        PERFORM 1 FROM tasks_suite WHERE id IN (SELECT suite_id FROM tasks_suitemembership WHERE task_version_id = NEW.id)
            ORDER BY id FOR NO KEY UPDATE;
        UPDATE tasks_suite SET
            valid_count = valid_count + (NEW.controls_ok IS TRUE)::int - (OLD.controls_ok IS TRUE)::int,
            rejected_count = rejected_count + (NEW.controls_ok IS FALSE)::int - (OLD.controls_ok IS FALSE)::int
        WHERE id IN (SELECT suite_id FROM tasks_suitemembership WHERE task_version_id = NEW.id);
        RETURN NULL;
    """,
)
