"""Histories of findings and quarantines; what a finding says is frozen once somebody has decided on it."""

from django.db import migrations

from composer_web.core.history import history_trigger, immutable_trigger

SUBJECT = ["subject", "run_id", "task_version_id", "group_id", "rollout_id", "rule", "key", "source", "created_at"]
CONTENT = "'rule_version', 'severity', 'summary', 'evidence', 'hits', 'fingerprint'"


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0003_findings"), ("ops", "0001_functions")]
    operations = [
        history_trigger("rollouts_finding", "rollouts_findingtransition", "finding_id"),
        history_trigger("rollouts_quarantine", "rollouts_quarantinetransition", "quarantine_id"),
        immutable_trigger("rollouts_finding", SUBJECT),
        immutable_trigger("rollouts_quarantine", ["rollout_id", "task_version_id", "created_at"]),
        # A dismissed finding may come back with other evidence; a confirmed one keeps what was confirmed.
        migrations.RunSQL(
            sql=f"""
            CREATE TRIGGER rollouts_finding_decided BEFORE UPDATE ON rollouts_finding
                FOR EACH ROW WHEN (OLD.state = 'confirmed' OR (OLD.state = 'dismissed' AND NEW.state <> 'open'))
                EXECUTE FUNCTION opencomposer_immutable({CONTENT});
            """,
            reverse_sql="DROP TRIGGER IF EXISTS rollouts_finding_decided ON rollouts_finding;",
        ),
    ]
