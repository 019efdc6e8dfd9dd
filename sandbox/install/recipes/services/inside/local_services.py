# A pytest plugin of the environment: what the tests talk to runs before the first of them.
# mypy: ignore-errors
import glob
import os
import runpy
import subprocess

START = os.path.expanduser("~/.services/start")

# Now, and not later: a conftest that is loaded next takes clients by name.
for _client in sorted(glob.glob(os.path.expanduser("~/.services/clients/*.py"))):
    runpy.run_path(_client)


def pytest_configure(config):
    done = subprocess.run(
        ["/bin/bash", START],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=120,
        start_new_session=True,
    )
    if done.returncode:
        raise RuntimeError(f"{START} failed: {done.stderr[-500:]!r}")
