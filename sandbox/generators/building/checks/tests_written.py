# A hidden check of tests that somebody wrote: they pass for the right code, also when it is laid out in another way, and
# fail for each wrong one. Its constants stand above.
# mypy: ignore-errors
# pragma: public literals
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OPTIONS = ["-c", "/dev/null", "--import-mode=importlib", "-p", "no:cacheprovider", "-q", "-x", "--no-header"]


def outcome(text):
    """pytest's exit code for the written tests, over a copy of the checkout with another text of the module."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "repo"
        shutil.copytree(".", copy, ignore=shutil.ignore_patterns(".git"))
        (copy / PATH).write_text(text)  # noqa: F821
        roots = os.pathsep.join(str(copy / root) for root in ROOTS)  # noqa: F821
        command = [sys.executable, "-s", "-B", "-m", "pytest", *OPTIONS, f"--rootdir={copy}", FILE]  # noqa: F821
        environment = {**os.environ, "PYTHONPATH": roots, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=copy, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
        return done.returncode


def test_the_tests_tell_right_from_wrong():
    assert [outcome(text) for text in VARIANTS] == CODES  # noqa: F821
