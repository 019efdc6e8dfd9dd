"""Audit entries tell from where, and what was before and after."""

from django.db import migrations, models

from composer_web.accounts.audit_triggers import FUNCTIONS, noted


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_guards"),
        ("repositories", "0003_repositories_and_logs"),
        ("tasks", "0007_review_guards"),
        ("policies", "0003_promotion_guards"),
        ("runs", "0003_in_flight_limit"),
        ("evals", "0005_sides"),
        ("rollouts", "0007_endpoint_tokens"),
        ("review", "0002_guards"),
    ]
    operations = [
        migrations.AddField("auditentry", "via", models.CharField(default="system", max_length=8)),
        migrations.AddField("auditentry", "address", models.GenericIPAddressField(blank=True, null=True)),
        migrations.AddField("auditentry", "credential", models.CharField(blank=True, default="", max_length=100)),
        migrations.AddField("auditentry", "changes", models.JSONField(default=list)),
        migrations.AddIndex("auditentry", models.Index(fields=["target", "-id"], name="audit_of_target")),
        migrations.AddIndex("auditentry", models.Index(fields=["actor", "-id"], name="audit_of_actor")),
        FUNCTIONS,
        noted("accounts_user", ["username", "role", "is_active", "email", "*password"], removed=True),
        noted("accounts_apitoken", ["name", "scopes", "expires_at", "revoked_at"], removed=True),
        noted("repositories_repository", ["name", "kind", "location", "revision", "licence", "notes", "*token"]),
        noted("repositories_environment", ["name", "state", "cancel_requested"]),
        noted("tasks_task", ["slug", "category", "family", "tags", "split", "review"], made=False),
        noted("tasks_taskversion", ["controls_ok", "test_strength"], made=False),
        noted("tasks_suite", ["name", "purpose", "description", "reviewed"]),
        noted("policies_policy", ["name", "description", "kind"]),
        noted("policies_endpoint", ["url", "model", "effort", "parameters", "price_input", "price_output", "*key"]),
        noted("policies_gate", ["channel", "rules"]),
        noted("policies_promotion", ["channel", "kind", "policy_id", "version", "canary_share"]),
        noted("runs_run", ["name", "state", "config"]),
        noted("evals_evaluation", ["state", "tasks", "samples"]),
        noted("rollouts_finding", ["state", "note"], made=False),
        noted("rollouts_quarantine", ["state"]),
        noted("review_queue", ["name", "title", "reviewers", "questions", "closed_at"]),
        noted("review_draft", ["slug", "state", "instruction"]),
    ]
