"""Headline metrics as columns that lists sort and filter by, and the last points of a run's curve with the run."""

from django.db import migrations, models
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

COLUMNS = {
    "reward": "reward/mean",
    "best_reward": "reward/best_of_k",
    "pass1": "eval/pass1",
    "best_of_k": "eval/best_of_k",
    "loss": "loss/train",
    "heldout_loss": "loss/heldout",
    "entropy": "policy/entropy",
    "staleness": "staleness/mean",
    "trainer_idle": "idle/trainer",
}
CURVES = migrations.RunSQL(
    sql="""
    UPDATE runs_run r SET curve = found.points FROM (
        SELECT r.id, jsonb_agg(jsonb_build_array(p.step, p.value) ORDER BY p.step) AS points
        FROM runs_run r
        JOIN runs_metrickey k ON k.name = CASE r.kind WHEN 'rl' THEN 'reward/mean' ELSE 'loss/train' END
        CROSS JOIN LATERAL (
            SELECT m.step, m.value FROM runs_metric m
            WHERE m.run_id = r.id AND m.key_id = k.id ORDER BY m.step DESC LIMIT 40
        ) p GROUP BY r.id
    ) found WHERE found.id = r.id
    """,
    reverse_sql=migrations.RunSQL.noop,
)


def latest(metric: str) -> models.GeneratedField:
    return models.GeneratedField(
        expression=Cast(KeyTextTransform(metric, "latest"), models.FloatField()),
        output_field=models.FloatField(null=True),
        db_persist=True,
    )


class Migration(migrations.Migration):
    dependencies = [("runs", "0006_projects")]
    operations = [
        *(migrations.AddField("run", name, latest(metric)) for name, metric in COLUMNS.items()),
        migrations.AddField(
            "run",
            "curve",
            models.JSONField(
                default=list, db_default=[], help_text="Last [step, value] pairs of its reward, or of its loss"
            ),
        ),
        migrations.AlterField(
            "runevent",
            "kind",
            models.CharField(help_text="checkpoint, sync, eval, alert, recovery, infra, note, reward", max_length=20),
        ),
        CURVES,
    ]
