"""Tasks: an instruction, an environment and a hidden verifier in one immutable, hashed bundle.

`spec` is the bundle, `store` keeps bundles on disk, `environments` lays out what a sandbox of a task shows, `leaks`
and `overlap` look for answers and for repeated tasks. `procedural/` makes small tasks from a seed; tasks from real
code come from `sandbox/generators/`.
"""

from sandbox.tasks.environments import EnvironmentStore, Manifest
from sandbox.tasks.spec import CallsVerifier, FrameworkVerifier, PytestVerifier, SuiteVerifier, TaskSpec
from sandbox.tasks.store import TaskStore, load_bundle

__all__ = [
    "CallsVerifier",
    "EnvironmentStore",
    "FrameworkVerifier",
    "Manifest",
    "PytestVerifier",
    "SuiteVerifier",
    "TaskSpec",
    "TaskStore",
    "load_bundle",
]
