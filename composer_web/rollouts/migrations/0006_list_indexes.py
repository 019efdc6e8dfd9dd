"""Indexes for sorting a list of many rollouts."""

from django.db import migrations, models

COLUMNS = {
    "reward": "rollout_by_reward",
    "turns": "rollout_by_turns",
    "tool_errors": "rollout_by_errors",
    "policy_tokens": "rollout_by_tokens",
    "oldest_version": "rollout_by_version",
    "finished_at": "rollout_by_end",
}


class Migration(migrations.Migration):
    dependencies = [("rollouts", "0005_forks")]
    operations = [
        migrations.AddIndex(model_name="rollout", index=models.Index(fields=[column], name=name))
        for column, name in COLUMNS.items()
    ]
