"""Triggers of metrics, which have no foreign keys: a check of each row was most of the time of a COPY."""

from __future__ import annotations

import pgtrigger
from django.db import models

from composer_web.core.triggers import Trigger

METRIC_OWNERS = Trigger(
    name="owners",
    level=pgtrigger.Statement,
    when=pgtrigger.After,
    operation=pgtrigger.Insert,
    referencing=pgtrigger.Referencing(new="added"),
    declare=[("missing", "bigint")],
    func="""
        SELECT a.run_id INTO missing FROM (SELECT DISTINCT run_id FROM added) a
            LEFT JOIN runs_run r ON r.id = a.run_id WHERE r.id IS NULL LIMIT 1;
        IF FOUND THEN
            RAISE foreign_key_violation USING MESSAGE = format('metrics of run %s, which does not exist', missing);
        END IF;
        SELECT a.key_id INTO missing FROM (SELECT DISTINCT key_id FROM added) a
            LEFT JOIN runs_metrickey k ON k.id = a.key_id WHERE k.id IS NULL LIMIT 1;
        IF FOUND THEN
            RAISE foreign_key_violation USING MESSAGE = format('metrics under name %s, which does not exist', missing);
        END IF;
        RETURN NULL;
    """,
)


class KeptForMetrics(Trigger):
    """Refuse deletion of a row that metrics name in `column`."""

    name = "metrics_kept"
    when = pgtrigger.Before
    operation = pgtrigger.Delete

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column

    def get_func(self, model: models.Model) -> str:
        return f"""
            IF EXISTS (SELECT FROM runs_metric WHERE {self.column} = OLD.id) THEN
                RAISE foreign_key_violation USING MESSAGE = format('%s %s has metrics', TG_TABLE_NAME, OLD.id);
            END IF;
            RETURN OLD;
        """
