# A hidden check of tests that somebody wrote: they pass for the right code, also when it is laid out in another way, and
# fail for each wrong one. FACTS stands above.
# mypy: ignore-errors
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

OPTIONS = ["-c", "/dev/null", "--import-mode=importlib", "-p", "no:cacheprovider", "-q", "-x", "--no-header"]


@functools.cache
def outcome(text):
    """pytest's exit code for the written tests, over a copy of the checkout with another text of the module."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repo"
        shutil.copytree(".", copy, ignore=shutil.ignore_patterns(".git"))
        (copy / FACTS["path"]).write_text(text)  # noqa: F821
        roots = os.pathsep.join(str(copy / root) for root in FACTS["roots"])  # noqa: F821
        command = [sys.executable, "-s", "-B", "-m", "pytest", *OPTIONS, f"--rootdir={copy}", FACTS["file"]]  # noqa: F821
        environment = {**os.environ, "PYTHONPATH": roots, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
        return done.returncode


@pytest.mark.parametrize("number", range(len(FACTS["wrong"])))  # noqa: F821
def test_the_tests_tell_right_from_wrong(number):
    assert outcome(FACTS["right"]) == 0  # noqa: F821
    assert outcome(FACTS["wrong"][number]) == 1  # noqa: F821
