"""The test frameworks that can be graded, one adapter each.

An adapter starts a run of its framework's tests and reads the report. It runs nothing itself and sees no verdict.
"""

from __future__ import annotations

from sandbox.grading.adapters.base import Adapter
from sandbox.grading.adapters.cargo import CargoAdapter
from sandbox.grading.adapters.go import GoAdapter
from sandbox.grading.adapters.jest import JestAdapter, VitestAdapter
from sandbox.grading.adapters.junit import JunitAdapter
from sandbox.grading.adapters.node import NodeAdapter
from sandbox.grading.adapters.pytest import PytestAdapter
from sandbox.grading.adapters.unittest import UnittestAdapter
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


def adapter_of(verifier: SuiteVerifier) -> Adapter:
    return ADAPTERS[framework_of(verifier)]


def framework_of(verifier: SuiteVerifier) -> str:
    if isinstance(verifier, PytestVerifier):
        return "pytest"
    assert isinstance(verifier, FrameworkVerifier)
    return verifier.framework
