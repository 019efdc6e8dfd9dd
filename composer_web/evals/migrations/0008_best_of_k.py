"""One K a curve: points of best-of-K by evaluations with other numbers of samples leave the run's own curve."""

from django.db import migrations

MOVE = """
    INSERT INTO runs_metrickey (name)
        SELECT DISTINCT 'eval/best_of/' || e.samples FROM evals_evaluation e WHERE e.run_id IS NOT NULL AND e.samples > 1
        ON CONFLICT (name) DO NOTHING;
    INSERT INTO runs_metric (run_id, key_id, step, value, at)
        SELECT DISTINCT ON (m.run_id, k.id, m.step) m.run_id, k.id, m.step, m.value, m.at
        FROM runs_metric m
        JOIN runs_metrickey old ON old.id = m.key_id AND old.name = 'eval/best_of_k'
        JOIN evals_evaluation e ON e.run_id = m.run_id AND e.version = m.step AND e.state = 'finished' AND e.samples > 1
        JOIN runs_metrickey k ON k.name = 'eval/best_of/' || e.samples
        ORDER BY m.run_id, k.id, m.step, e.id DESC
        ON CONFLICT (run_id, key_id, step) DO NOTHING;
    DELETE FROM runs_metric m
        USING runs_metrickey old, evals_evaluation e, runs_run r
        WHERE old.id = m.key_id AND old.name = 'eval/best_of_k' AND r.id = m.run_id
          AND e.run_id = m.run_id AND e.version = m.step AND e.state = 'finished'
          AND e.samples <> COALESCE((r.config #>> '{stage,eval_samples}')::int, 8);
    UPDATE runs_run r SET latest = (r.latest - 'eval/best_of_k') || COALESCE((
            SELECT jsonb_build_object('eval/best_of_k', m.value)
            FROM runs_metric m JOIN runs_metrickey k ON k.id = m.key_id AND k.name = 'eval/best_of_k'
            WHERE m.run_id = r.id ORDER BY m.step DESC LIMIT 1
        ), '{}'::jsonb)
        WHERE r.latest ? 'eval/best_of_k';
"""


class Migration(migrations.Migration):
    dependencies = [("evals", "0007_projects"), ("runs", "0007_metric_columns")]
    operations = [migrations.RunSQL(sql=MOVE, reverse_sql=migrations.RunSQL.noop)]
