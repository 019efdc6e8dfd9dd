"""Histories and frozen columns, kept by triggers; a covering key for reading metrics."""

from django.db import migrations

from composer_web.core.history import append_only_trigger, history_trigger, immutable_trigger

COVERING_KEY = migrations.RunSQL(
    sql="""
    ALTER TABLE runs_metric DROP CONSTRAINT runs_metric_pkey;
    ALTER TABLE runs_metric ADD CONSTRAINT runs_metric_pkey PRIMARY KEY (run_id, key_id, step) INCLUDE (value, at);
    """,
    reverse_sql="""
    ALTER TABLE runs_metric DROP CONSTRAINT runs_metric_pkey;
    ALTER TABLE runs_metric ADD CONSTRAINT runs_metric_pkey PRIMARY KEY (run_id, key_id, step);
    """,
)


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial"), ("ops", "0001_functions")]
    operations = [
        history_trigger("runs_run", "runs_runtransition", "run_id"),
        immutable_trigger("runs_run", ["config", "kind", "seed", "policy_in_id"], when="OLD.state <> 'draft'"),
        append_only_trigger("runs_trainbatch"),
        append_only_trigger("runs_runevent"),
        COVERING_KEY,
    ]
