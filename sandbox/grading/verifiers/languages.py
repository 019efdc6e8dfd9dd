"""How the hidden tests of a task are written: where canaries can be inserted, and how assertions are made to report."""

from __future__ import annotations

from sandbox.grading.adapters import framework_of
from sandbox.grading.canaries.base import Language
from sandbox.grading.canaries.go import GoTests
from sandbox.grading.canaries.javascript import JavaScriptTests
from sandbox.grading.canaries.python import PythonTests
from sandbox.grading.canaries.rust import RustTests
from sandbox.grading.observations.brace_tests.braces import Rewriter
from sandbox.grading.observations.brace_tests.go import GoRewriter
from sandbox.grading.observations.brace_tests.javascript import JavaScriptRewriter
from sandbox.grading.observations.brace_tests.rust import RustRewriter
from sandbox.tasks.spec import SuiteVerifier

LANGUAGES: dict[str, Language] = {
    "pytest": PythonTests(),
    "unittest": PythonTests(),
    "go": GoTests(),
    "cargo": RustTests(),
    "node": JavaScriptTests(),
    "jest": JavaScriptTests(),
    "vitest": JavaScriptTests(),
}
"""A JUnit report does not say where a test is written, so nothing can be inserted beside it."""


def language_of(verifier: SuiteVerifier) -> Language | None:
    """How the hidden tests are written; None where canaries cannot be inserted."""
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
