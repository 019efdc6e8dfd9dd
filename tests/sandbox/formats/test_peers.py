"""The packages of the formats' owners read what we write: `harbor` and `inspect_ai`, in an environment of their own.

They need a newer Python and a hundred packages, so they are no part of ours: docs/guides/formats.md says how `.venv-peers` is
made, and these tests skip where that is missing.
"""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.formats import atif, harbor, inspect_log
from sandbox.tasks.environments import EnvironmentStore
from tests.sandbox.formats.examples import CALLS, RECORD, TASK

ROOT = Path(__file__).parents[4]
PYTHON = Path(os.environ.get("OPENCOMPOSER_PEERS", ROOT / ".venv-peers")) / "bin" / "python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-peers: see docs/guides/formats.md"),
    pytest.mark.timeout(300),
]


def read(program: str, *arguments: object) -> dict:
    done = subprocess.run(
        [PYTHON, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_harbor_reads_our_trajectory(tmp_path):
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(atif.export(RECORD)[0]))
    found = read(
        "import json, sys; from harbor.models.trajectories.trajectory import Trajectory\n"
        "t = Trajectory.model_validate_json(open(sys.argv[1]).read()); print(json.dumps(t.to_json_dict()))",
        path,
    )
    assert atif.load(json.dumps(found))[0] == RECORD


@pytest.mark.parametrize("task", [TASK, CALLS], ids=["pytest", "calls"])
def test_harbor_reads_our_task(tmp_path, task):
    harbor.export(task, EnvironmentStore(tmp_path / "store"))[0].write(tmp_path / "task")
    found = read(
        "import json, sys; from pathlib import Path; from harbor.models.task.task import Task\n"
        "t = Task(Path(sys.argv[1])); c = t.config\n"
        "print(json.dumps({'instruction': t.instruction, 'version': c.schema_version, 'name': c.task.name,"
        " 'network': str(c.environment.network_mode.value), 'metadata': c.metadata}))",
        tmp_path / "task",
    )
    assert found["instruction"] == task.instruction and found["version"] == "1.4"
    assert found["name"] == f"opencomposer/{task.id}" and found["network"] == "no-network"
    assert found["metadata"]["bundle_hash"] == task.bundle_hash


def test_inspect_reads_our_log(tmp_path):
    lost = RECORD.model_copy(update={"id": "rollout-8", "reward": None, "verdict": "infra_error"})
    losses = inspect_log.export(
        [RECORD, lost], tmp_path / "a.eval", suite="held-out", created=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert "token ids and log-probabilities" in losses.found
    found = read(
        "import json, sys; from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries as s\n"
        "log = read_eval_log(sys.argv[1]); one = log.samples[0]; call = one.messages[3].tool_calls\n"
        "print(json.dumps({'status': log.status, 'epochs': [x.epoch for x in log.samples], 'n': len(s(sys.argv[1])),"
        " 'value': one.scores['tests'].value, 'roles': [m.role for m in one.messages], 'arguments': call[0].arguments,"
        " 'parse': call[1].parse_error, 'error': log.samples[1].error.message,"
        " 'accuracy': log.results.scores[0].metrics['accuracy'].value}))",
        tmp_path / "a.eval",
    )  # fmt: skip
    assert found == {
        "status": "success", "epochs": [1, 2], "n": 2, "value": 1.0, "arguments": {"path": "a.py"},
        "roles": ["system", "user", "assistant", "assistant", "tool", "tool", "assistant"],
        "parse": "not JSON: {oops", "error": "infra_error", "accuracy": 1.0,
    }  # fmt: skip
