"""Triggers of alerts."""

from __future__ import annotations

import pgtrigger

from composer_web.core.triggers import Trigger


class ProjectOfSubject(Trigger):
    """Give an alert the project of what it is about: `run:12`, `finding:3` or `project:1`."""

    name = "project"
    when = pgtrigger.Before
    operation = pgtrigger.Insert | pgtrigger.UpdateOf("about", "project_id")
    declare = [
        ("kind_told", "text := split_part(NEW.about, ':', 1)"),
        ("key_told", "text := split_part(NEW.about, ':', 2)"),
    ]
    func = """
        IF key_told ~ '^[0-9]{1,18}$' THEN
            IF kind_told = 'run' THEN
                NEW.project_id := (SELECT project_id FROM runs_run WHERE id = key_told::bigint);
            ELSIF kind_told = 'finding' THEN
                NEW.project_id := (SELECT project_id FROM rollouts_finding WHERE id = key_told::bigint);
            ELSIF kind_told = 'project' THEN
                NEW.project_id := (SELECT id FROM accounts_project WHERE id = key_told::bigint);
            END IF;
        END IF;
        RETURN NEW;
    """
