"""A large product for `tests.bench.web.tables`: 100,000 tasks, 1,000,000 rollouts, and what belongs to them.

Rows are made inside Postgres (`generate_series`), each from its own number, so the same call makes the same world.
Triggers are off meanwhile: histories stay empty, which no list reads; what triggers keep for lists is written here. Shares are
those of a busy installation: one task in eight has a second version, three rollouts in a hundred are lost, rewards depend on
how hard the prompt is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.db import connection, transaction

from composer_web.accounts.models import Role, User
from composer_web.policies.models import Policy
from composer_web.repositories.models import Environment
from sandbox.tasks.procedural import generate
from trainer.config import RunConfig
from trainer.toy.preset import toy_rl

GROUP = 8
"""Rollouts of a prompt."""
RUNS, POLICIES, EVALUATIONS, ENVIRONMENTS, SUITES = 60, 20, 600, 300, 40
BENCH = "bench"
"""Who looks at the lists, and has reviewed one task in forty; there is nobody before `fill`."""
EVALUATED = 40
"""Tasks of an evaluation."""


@dataclass(frozen=True, slots=True)
class Size:
    tasks: int
    rollouts: int

    @property
    def groups(self) -> int:
        return self.rollouts // GROUP


PEOPLE = """
INSERT INTO policies_policy (name, description, kind, base_dir, architecture, toy, created_at, parent_id)
SELECT 'policy-' || n, '', 'weights', 'policies/base', '{"parameters": 7000000000}', false, now() - n * interval '1 hour',
       NULLIF(n / 4, 0) FROM generate_series(1, %(policies)s) n;
INSERT INTO policies_checkpoint (policy_id, version, kind, digest, path, bytes, created_at)
SELECT p, v * 20, 'step', md5(p || '/' || v), 'checkpoints/' || p || '/' || v, 14000000000, now()
FROM generate_series(1, %(policies)s) p, generate_series(1, 10) v;
INSERT INTO runs_run (name, kind, config, state, policy_in_id, policy_in_version, seed, code_version, step, steps_total,
                      policy_version, phase, latest, failure, recoveries, created_at, started_at)
SELECT 'run ' || n, 'rl', %(config)s::jsonb,
       CASE WHEN n > %(runs)s - 3 THEN 'running' WHEN n %% 9 = 0 THEN 'failed' ELSE 'finished' END,
       1 + n %% %(policies)s, 0, n, '1', 200, 200, 200, '', '{"eval/pass1": 0.61, "reward/mean": 0.55}', '', 0,
       now() - (%(runs)s - n) * interval '7 hours', now() - (%(runs)s - n) * interval '7 hours'
FROM generate_series(1, %(runs)s) n;
INSERT INTO runs_metrickey (name) SELECT 'metric/' || n FROM generate_series(1, 30) n;
INSERT INTO runs_metrickey (name) VALUES ('reward/mean'), ('loss/train');
INSERT INTO runs_metric (run_id, key_id, step, value, at)
SELECT r, k.id, s, random(), now() FROM generate_series(1, %(runs)s) r, runs_metrickey k, generate_series(1, 200) s;
UPDATE runs_run SET curve = (SELECT jsonb_agg(jsonb_build_array(s, random()) ORDER BY s) FROM generate_series(161, 200) s);
"""

TASKS = """
INSERT INTO tasks_task (slug, source, category, family, created_at)
SELECT (ARRAY['mutation','procedural'])[1 + n %% 2] || '-' || substr(md5(n::text), 1, 10) || '-' || n,
       (ARRAY['mutation','procedural'])[1 + n %% 2], (ARRAY['debug','feature','refactor','tests'])[1 + (n * 7) %% 4],
       'package-' || n %% 300, now() - n * interval '10 seconds' FROM generate_series(1, %(tasks)s) n;
INSERT INTO tasks_taskversion (task_id, number, spec, bundle_hash, environment_id, controls, controls_ok, controls_at,
                               test_strength, created_at)
SELECT id, v, jsonb_set(%(spec)s::jsonb, '{id}', to_jsonb(slug)), md5(id || '/' || v) || md5(v || '/' || id),
       1 + id %% %(environments)s, '{"oracle": ["passed", "passed", "passed"], "noop": ["failed", "failed", "failed"]}',
       CASE WHEN id %% 20 = 0 THEN NULL ELSE id %% 17 <> 0 END, now(), (id * 37 %% 101) / 100.0, now()
FROM tasks_task, generate_series(1, 2) v WHERE v = 1 OR id %% 8 = 0;
UPDATE tasks_task t
SET newest_version_id = v.id, newest_number = v.number, controls_ok = v.controls_ok, test_strength = v.test_strength,
    pass_rate = CASE WHEN t.id %% 3 = 0 THEN NULL ELSE (t.id %% 9) / 8.0 END
FROM tasks_taskversion v WHERE v.task_id = t.id AND v.number = 1 + (t.id %% 8 = 0)::int;
INSERT INTO tasks_suite (name, purpose, description, recipe, created_at)
SELECT CASE n WHEN 1 THEN 'train' WHEN 2 THEN 'held-out' ELSE 'suite-' || n END,
       CASE n %% 3 WHEN 1 THEN 'train' WHEN 2 THEN 'held-out' ELSE 'benchmark' END, 'Tasks of one kind', '{}',
       now() - n * interval '1 day' FROM generate_series(1, %(suites)s) n;
INSERT INTO tasks_suitemembership (suite_id, task_version_id, task_id, slug, position)
SELECT s.id, v.id, v.task_id, t.slug, row_number() OVER (PARTITION BY s.id ORDER BY v.id) - 1
FROM tasks_suite s JOIN tasks_taskversion v
  ON CASE WHEN s.id = 1 THEN v.task_id %% 2 = 0 AND v.number = 1 ELSE v.task_id %% 60 = s.id END
JOIN tasks_task t ON t.id = v.task_id;
UPDATE tasks_suite s SET task_count = c.tasks, valid_count = c.valid, rejected_count = c.rejected
FROM (SELECT m.suite_id, count(*) AS tasks, count(*) FILTER (WHERE v.controls_ok) AS valid,
             count(*) FILTER (WHERE NOT v.controls_ok) AS rejected
      FROM tasks_suitemembership m JOIN tasks_taskversion v ON v.id = m.task_version_id GROUP BY m.suite_id) c
WHERE c.suite_id = s.id;
INSERT INTO tasks_taskreview (task_version_id, reviewer_id, decision, note, created_at)
SELECT newest_version_id, %(reviewer)s, (ARRAY['accept','reject','accept','withdrawn'])[1 + id / 40 %% 4], '', now()
FROM tasks_task WHERE id %% 40 = 0 ORDER BY id;
UPDATE tasks_task t SET review = 'one' FROM tasks_taskreview r
WHERE r.task_version_id = t.newest_version_id AND r.decision <> 'withdrawn';
"""

ROLLOUTS = """
INSERT INTO evals_release (benchmark, number, suite_id, notes, digest, statistics, created_at)
SELECT 'bench-' || n %% 5, 1 + n / 5, 1 + n %% %(suites)s, '', md5(n::text),
       '{"tasks": 120, "lines": 14, "prompt_characters": 300}', now() FROM generate_series(0, 99) n;
INSERT INTO evals_evaluation (release_id, effort, run_id, policy_id, version, suite_id, phase, tasks, samples, temperature,
                              seed, conditions, sides,
                              state, results, failure, created_at, started_at, finished_at)
SELECT 1 + n %% 100, '', NULL, 1 + n %% %(policies)s, n, 1 + n %% %(suites)s, 'alone', %(evaluated)s, %(group)s, 0.8, n,
       '{"sampling": {}, "harness": {}, "reward": {}}', '{}', 'finished',
       '{"pass1": 0.4, "pass1_low": 0.3, "pass1_high": 0.5, "best": 0.7, "best_of": 8}', '',
       now() - (%(evaluations)s - n) * interval '50 minutes', now(), now()
FROM generate_series(1, %(evaluations)s) n;
INSERT INTO rollouts_group (run_id, evaluation_id, task_version_id, prompt_index, size, state, dispatched_version,
    oldest_version, attempts, infra_errors, cause, mean_reward, best_reward, consumed_step, train_key, audited_with,
    created_at, dispatched_at, accepted_at)
SELECT CASE WHEN n > %(alone)s THEN 1 + (n - %(alone)s - 1) / %(per_run)s END,
       CASE WHEN n <= %(alone)s THEN 1 + (n - 1) / %(evaluated)s END,
       1 + (n::bigint * 7919) %% %(tasks)s,
       CASE WHEN n > %(alone)s THEN (n - %(alone)s - 1) %% %(per_run)s ELSE (n - 1) %% %(evaluated)s END,
       %(group)s, CASE WHEN n > %(alone)s THEN 'consumed' ELSE 'accepted' END, n %% 200, n %% 200, 1, 0, '',
       (n %% 10) / 10.0, 1.0, n %% 200, 'groups/' || n || '/1/train.json.zst', '1', now(), now(), now()
FROM generate_series(1, %(groups)s) n;
INSERT INTO rollouts_rollout (group_id, sample, state, verdict, stop_reason, reward, reward_parts, cause, turns, tool_calls,
    tool_errors, output_tokens, total_tokens, oldest_version, newest_version, seconds, artifact_key, created_at, finished_at,
    snapshots)
SELECT g, s, CASE WHEN lost THEN 'lost' ELSE 'graded' END,
       CASE WHEN lost THEN 'infra_error' WHEN passed THEN 'passed' ELSE 'failed' END,
       CASE WHEN lost THEN 'infra_error' WHEN draw < 0.8 THEN 'finished' WHEN draw < 0.95 THEN 'max_turns' ELSE 'timeout' END,
       CASE WHEN lost THEN NULL ELSE passed::int - 0.1 * draw END,
       '[{"name": "tests", "value": 1.0, "weight": 1.0}, {"name": "length", "value": -0.05, "weight": 1.0}]',
       CASE WHEN passed THEN '' ELSE '2 of 6 cases failed' END, 3 + (draw * 40)::int, 4 + (draw * 60)::int,
       (draw * draw * 6)::int, 200 + (draw * 9000)::int, 900 + (draw * 60000)::int, g %% 200, g %% 200,
       '{"start": 0.02, "generate": 14.0, "tools": 3.1, "grade": 0.5, "total": 17.6}',
       'groups/' || g || '/1/' || s || '.json.zst', t, t, '[]'
FROM (SELECT g, s, random() AS draw, random() < 0.03 AS lost, random() < (g %% 10) / 10.0 AS passed,
             now() - (%(groups)s - g) * interval '20 seconds' AS t
      FROM generate_series(1, %(groups)s) g, generate_series(0, %(group)s - 1) s) made ORDER BY g, s;
INSERT INTO rollouts_finding (subject, run_id, task_version_id, slug, group_id, rollout_id, source, rule, rule_version, key,
    severity, summary, evidence, hits, fingerprint, state, note, created_at, decided_at)
SELECT 'rollout', g.run_id, g.task_version_id, t.slug, g.id, r.id, 'rules',
       (ARRAY['history-read','early-exit','bare-claim','test-edit','special-case'])[1 + r.id / 25 %% 5], 1, '',
       (ARRAY['high','medium','low'])[1 + r.id %% 3], 'reads what it should not', '[{"source": "call", "turn": 2}]', 1, '',
       CASE WHEN r.id %% 100 = 0 THEN 'dismissed' ELSE 'open' END, '', r.created_at,
       CASE WHEN r.id %% 100 = 0 THEN now() END
FROM rollouts_rollout r JOIN rollouts_group g ON g.id = r.group_id JOIN tasks_taskversion v ON v.id = g.task_version_id
JOIN tasks_task t ON t.id = v.task_id WHERE r.id %% 25 = 0 ORDER BY r.id;
"""


DEFAULTS = """
SELECT format('ALTER TABLE %%I ALTER COLUMN %%I SET DEFAULT %%s', c.table_name, c.column_name,
              CASE c.column_name WHEN 'project_id' THEN '1' ELSE empty.value END)
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
JOIN (VALUES ('ARRAY', $$'{}'$$), ('jsonb', $$'{}'$$), ('text', $$''$$), ('character varying', $$''$$), ('boolean', 'false'),
             ('smallint', '0'), ('integer', '0'), ('bigint', '0'), ('double precision', '0'),
             ('timestamp with time zone', 'now()')) AS empty(type, value) ON empty.type = c.data_type
WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.is_nullable = 'NO' AND c.column_default IS NULL
  AND c.is_identity = 'NO' AND c.is_generated = 'NEVER'
"""
"""Columns that no statement here names get the empty value of their type: a later column does not break the bench. All is in
the project that every installation has."""


def fill(size: Size) -> User:
    """Fill an empty, migrated database; returns an operator. Raises ValueError when it is not empty."""
    if Policy.objects.exists():
        raise ValueError("the database has rows already; give the bench one of its own")
    config = RunConfig(name="run", stage=toy_rl()).model_dump(mode="json")
    alone = min(EVALUATIONS * EVALUATED, size.groups // 4)
    values: dict[str, int | str] = {
        "tasks": size.tasks,
        "groups": size.groups,
        "alone": alone,
        "per_run": -(-(size.groups - alone) // RUNS),
        "group": GROUP,
        "runs": RUNS,
        "policies": POLICIES,
        "evaluations": EVALUATIONS,
        "evaluated": EVALUATED,
        "environments": ENVIRONMENTS,
        "suites": SUITES,
        "config": json.dumps(config),
        "spec": json.dumps(generate(1, "train").model_dump(mode="json")),
    }
    with transaction.atomic(), connection.cursor() as cursor:
        user = User.objects.create(username=BENCH, role=Role.OPERATOR, password=make_password(None))
        values["reviewer"] = user.pk
        cursor.execute("SET LOCAL session_replication_role = replica")  # no triggers: see above
        cursor.execute(DEFAULTS, [])
        for (statement,) in cursor.fetchall():
            cursor.execute(statement)
        Environment.objects.bulk_create(
            [
                Environment(
                    name=f"package-{n}",
                    source=f"package-{n}==1.{n}",
                    digest=f"{n:064x}",
                    state="ready",
                    detail={"tests": 412, "bytes": 9_000_000},
                )
                for n in range(1, ENVIRONMENTS + 1)
            ]
        )
        for part in (PEOPLE, TASKS, ROLLOUTS):
            for statement in filter(str.strip, part.split(";\n")):
                cursor.execute(statement, {name: value for name, value in values.items() if f"%({name})s" in statement})
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return user
