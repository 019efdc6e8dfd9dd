"""Why groups and rollouts ended, as an enum (sandbox.grading.verdict.outcomes.Cause) beside the text for people.

Groups that were dropped before are given the cause that their text named: the last time that it is read for that.
"""

from django.db import migrations, models

FROM_TEXT = """
UPDATE rollouts_group SET outcome = CASE
    WHEN cause LIKE '%%in quarantine%%' OR cause LIKE '%%beside the quarantine%%' THEN 'quarantined'
    WHEN cause LIKE '%%controls and was rejected%%' OR cause LIKE '%%fails its controls%%' THEN 'task_invalid'
    WHEN cause LIKE '%%SandboxLost%%' OR cause LIKE '%%launcher ended%%' THEN 'sandbox_lost'
    WHEN cause LIKE '%%SandboxUnavailable%%' THEN 'sandbox_unavailable'
    WHEN cause LIKE '%%has ended' OR cause LIKE 'cancelled%%' THEN 'cancelled'
    WHEN cause LIKE '%%names policy version%%' OR cause LIKE '%%EngineLied%%' THEN 'invalid_engine_response'
    WHEN cause LIKE '%%reward part%%' THEN 'reward_failed'
    WHEN cause LIKE '%%NaN or infinity%%' THEN 'not_finite'
    WHEN cause LIKE '%%did not end within%%' THEN 'group_deadline'
    ELSE 'host_failed' END
WHERE state = 'dropped'
"""

FIELD = models.CharField(
    blank=True, db_default="", default="", help_text="The same: sandbox.grading.verdict.outcomes.Cause", max_length=32
)


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0015_void_exports")]

    operations = [
        migrations.AlterField(
            "group", "cause", models.TextField(blank=True, help_text="Why it was retried or dropped, in one line")
        ),
        migrations.AddField("group", "outcome", FIELD),
        migrations.AddField("rollout", "outcome", FIELD),
        migrations.RunSQL(FROM_TEXT.replace("%%", "%"), migrations.RunSQL.noop),
    ]
