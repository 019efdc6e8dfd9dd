"""An alert belongs to the project of what it is about."""

import django.db.models.deletion
from django.db import migrations, models

PROJECT = migrations.RunSQL(
    sql="""
    CREATE FUNCTION alerts_alert_project() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE kind text := split_part(NEW.about, ':', 1); key text := split_part(NEW.about, ':', 2);
    BEGIN
        IF key ~ '^[0-9]{1,18}$' THEN
            IF kind = 'run' THEN NEW.project_id := (SELECT project_id FROM runs_run WHERE id = key::bigint);
            ELSIF kind = 'finding' THEN
                NEW.project_id := (SELECT project_id FROM rollouts_finding WHERE id = key::bigint);
            END IF;
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER alerts_alert_project BEFORE INSERT OR UPDATE OF about, project_id ON alerts_alert
        FOR EACH ROW EXECUTE FUNCTION alerts_alert_project();
    UPDATE alerts_alert SET about = about;
    """,
    reverse_sql="DROP TRIGGER alerts_alert_project ON alerts_alert; DROP FUNCTION alerts_alert_project();",
)


class Migration(migrations.Migration):
    dependencies = [("alerts", "0002_noted"), ("accounts", "0004_projects"), ("rollouts", "0009_projects")]
    operations = [
        migrations.AddField(
            "alert",
            "project",
            models.ForeignKey(
                blank=True,
                editable=False,
                help_text="Of what it is about, by a trigger; empty for what is the installation's",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="accounts.project",
            ),
        ),
        PROJECT,
    ]
