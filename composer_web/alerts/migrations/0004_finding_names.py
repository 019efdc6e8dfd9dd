"""The trigger's variable is not named like a column of findings: an alert on a finding could not be written."""

from django.db import migrations

BODY = """
    CREATE OR REPLACE FUNCTION alerts_alert_project() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE kind_told text := split_part(NEW.about, ':', 1); key_told text := split_part(NEW.about, ':', 2);
    BEGIN
        IF key_told ~ '^[0-9]{1,18}$' THEN
            IF kind_told = 'run' THEN
                NEW.project_id := (SELECT project_id FROM runs_run WHERE id = key_told::bigint);
            ELSIF kind_told = 'finding' THEN
                NEW.project_id := (SELECT project_id FROM rollouts_finding WHERE id = key_told::bigint);
            END IF;
        END IF;
        RETURN NEW;
    END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("alerts", "0003_projects")]
    operations = [migrations.RunSQL(sql=BODY, reverse_sql=migrations.RunSQL.noop)]
