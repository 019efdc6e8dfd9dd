"""Owners of metrics are checked once a statement: a trigger a row was most of the time of a COPY."""

import django.db.models.deletion
from django.db import migrations, models

CHECKED = migrations.RunSQL(
    sql="""
    CREATE FUNCTION runs_metric_owners() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE missing bigint;
    BEGIN
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
    END $$;
    CREATE TRIGGER metric_owners AFTER INSERT ON runs_metric
        REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION runs_metric_owners();

    CREATE FUNCTION runs_metric_kept() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE used boolean;
    BEGIN
        EXECUTE format('SELECT EXISTS (SELECT FROM runs_metric WHERE %I = $1)', TG_ARGV[0]) INTO used USING OLD.id;
        IF used THEN
            RAISE foreign_key_violation USING MESSAGE = format('%s %s has metrics', TG_TABLE_NAME, OLD.id);
        END IF;
        RETURN OLD;
    END $$;
    CREATE TRIGGER metrics_kept BEFORE DELETE ON runs_run FOR EACH ROW EXECUTE FUNCTION runs_metric_kept('run_id');
    CREATE TRIGGER metrics_kept BEFORE DELETE ON runs_metrickey FOR EACH ROW EXECUTE FUNCTION runs_metric_kept('key_id');
    """,
    reverse_sql="""
    DROP TRIGGER metrics_kept ON runs_metrickey;
    DROP TRIGGER metrics_kept ON runs_run;
    DROP TRIGGER metric_owners ON runs_metric;
    DROP FUNCTION runs_metric_kept();
    DROP FUNCTION runs_metric_owners();
    """,
)


def unchecked(model: str, name: str) -> models.ForeignKey:
    return models.ForeignKey(
        to=model,
        on_delete=django.db.models.deletion.PROTECT,
        related_name=name,
        db_index=False,
        db_constraint=False,
    )


class Migration(migrations.Migration):
    dependencies = [("runs", "0004_launch")]
    operations = [
        migrations.AlterField("metric", "run", unchecked("runs.run", "metrics")),
        migrations.AlterField("metric", "key", unchecked("runs.metrickey", "+")),
        CHECKED,
    ]
