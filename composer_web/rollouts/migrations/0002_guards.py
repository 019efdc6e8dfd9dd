"""Histories and frozen columns, kept by triggers."""

from django.db import migrations

from composer_web.core.history import history_trigger, immutable_trigger

VERDICT = ["group_id", "sample", "verdict", "reward", "reward_parts", "stop_reason", "artifact_key"]


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0001_initial"), ("ops", "0001_functions")]
    operations = [
        history_trigger("rollouts_group", "rollouts_grouptransition", "group_id"),
        history_trigger("rollouts_rollout", "rollouts_rollouttransition", "rollout_id"),
        immutable_trigger("rollouts_rollout", VERDICT, when="OLD.state IN ('graded', 'lost')"),
        immutable_trigger("rollouts_group", ["run_id", "evaluation_id", "task_version_id", "prompt_index", "size"]),
    ]
