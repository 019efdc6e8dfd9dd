"""The frameworks whose tests can be graded: one adapter each, and how their tests are written."""

from __future__ import annotations

from sandbox.grading.adapters.base import Adapter
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.canaries.base import Language
from sandbox.grading.canaries.python import PythonTests
from sandbox.tasks.spec import FrameworkVerifier, PytestVerifier, SuiteVerifier

ADAPTERS: dict[str, Adapter] = {adapter.name: adapter for adapter in (PytestAdapter(),)}
LANGUAGES: dict[str, Language] = {"pytest": PythonTests(), "unittest": PythonTests()}


def adapter_of(verifier: SuiteVerifier) -> Adapter:
    return ADAPTERS[framework_of(verifier)]


def language_of(verifier: SuiteVerifier) -> Language | None:
    """How the hidden tests are written; None where canaries cannot be planted."""
    return LANGUAGES.get(framework_of(verifier))


def framework_of(verifier: SuiteVerifier) -> str:
    if isinstance(verifier, PytestVerifier):
        return "pytest"
    assert isinstance(verifier, FrameworkVerifier)
    return verifier.framework
