"""The frameworks whose tests can be graded: one adapter each, and how their tests are written."""

from __future__ import annotations

from sandbox.grading.adapters.base import Adapter
from sandbox.grading.adapters.cargo import CargoAdapter
from sandbox.grading.adapters.go import GoAdapter
from sandbox.grading.adapters.jest import JestAdapter, VitestAdapter
from sandbox.grading.adapters.junit import JunitAdapter
from sandbox.grading.adapters.node import NodeAdapter
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.adapters.unittest import UnittestAdapter
from sandbox.grading.canaries.base import Language
from sandbox.grading.canaries.go import GoTests
from sandbox.grading.canaries.javascript import JavaScriptTests
from sandbox.grading.canaries.python import PythonTests
from sandbox.grading.canaries.rust import RustTests
from sandbox.grading.observations.braces import Rewriter
from sandbox.grading.observations.go import GoRewriter
from sandbox.grading.observations.javascript import JavaScriptRewriter
from sandbox.grading.observations.rust import RustRewriter
from sandbox.tasks.spec import FrameworkVerifier, PytestVerifier, SuiteVerifier

ADAPTERS: dict[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        PytestAdapter(),
        UnittestAdapter(),
        GoAdapter(),
        CargoAdapter(),
        NodeAdapter(),
        JestAdapter(),
        VitestAdapter(),
        JunitAdapter(),
    )
}
LANGUAGES: dict[str, Language] = {
    "pytest": PythonTests(),
    "unittest": PythonTests(),
    "go": GoTests(),
    "cargo": RustTests(),
    "node": JavaScriptTests(),
    "jest": JavaScriptTests(),
    "vitest": JavaScriptTests(),
}
"""A JUnit report does not say where a test is written, so nothing can be planted beside it."""


def adapter_of(verifier: SuiteVerifier) -> Adapter:
    return ADAPTERS[framework_of(verifier)]


def language_of(verifier: SuiteVerifier) -> Language | None:
    """How the hidden tests are written; None where canaries cannot be planted."""
    return LANGUAGES.get(framework_of(verifier))


REWRITERS: dict[str, Rewriter] = {
    "go": GoRewriter(),
    "cargo": RustRewriter(),
    "node": JavaScriptRewriter(),
    "jest": JavaScriptRewriter(),
    "vitest": JavaScriptRewriter(),
}


def rewriter_of(verifier: SuiteVerifier) -> Rewriter | None:
    """How assertions of the hidden tests are made to report; None for Python, whose plan is made otherwise."""
    return REWRITERS.get(framework_of(verifier))


def framework_of(verifier: SuiteVerifier) -> str:
    if isinstance(verifier, PytestVerifier):
        return "pytest"
    assert isinstance(verifier, FrameworkVerifier)
    return verifier.framework
