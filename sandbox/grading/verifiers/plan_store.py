"""Plans kept by what they follow from: the checkout with the oracle's work, and the hidden tests.

Generated tasks of one package differ in the bug that they plant. With the oracle's work all of them are the same checkout, so
tests that were observed for one draft need not be observed again for the next.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from sandbox.grading.observations.plan import Plan
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.files import replace_file
from sandbox.tasks.spec import BuiltEnvironment, SuiteVerifier, TaskSpec

FORMAT = 4
"""Changed whenever tests are observed in another way."""


class PlanStore:
    """`<root>/plans/<ab>/<digest>.json`."""

    def __init__(self, environments: EnvironmentStore) -> None:
        self._environments = environments
        self._root = environments.root / "plans"

    def load(self, task: TaskSpec, verifier: SuiteVerifier) -> Plan | None:
        """None where none is kept, and for repositories that travel inside their bundle."""
        path = self._path(task, verifier)
        try:
            return None if path is None else Plan.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None  # made again

    def save(self, task: TaskSpec, verifier: SuiteVerifier, plan: Plan) -> None:
        path = self._path(task, verifier)
        if path is not None:
            replace_file(path, plan.model_dump_json())

    def _path(self, task: TaskSpec, verifier: SuiteVerifier) -> Path | None:
        environment = task.environment
        if not isinstance(environment, BuiltEnvironment):
            return None
        base = BuiltEnvironment(digest=environment.digest)
        solved = {**environment.overrides, **task.gold}
        changed = {path: text for path, text in solved.items() if not self._is_own(base, path, text)}
        asked = verifier.model_dump(mode="json", exclude={"fail_to_pass", "pass_to_pass", "timeout_seconds"})
        wanted = sorted({*verifier.fail_to_pass, *verifier.pass_to_pass})
        facts = json.dumps([FORMAT, environment.digest, changed, asked, wanted], sort_keys=True)
        digest = hashlib.sha256(facts.encode()).hexdigest()
        return self._root / digest[:2] / f"{digest}.json"

    def _is_own(self, base: BuiltEnvironment, path: str, text: str) -> bool:
        """Whether the environment itself holds `text` there."""
        found = self._environments.pristine(base, path)
        return found is not None and found.content == text.encode()
