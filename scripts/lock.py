"""Compile requirements.lock from requirements.in and the dev extra (`make lock`), and check that it is current.

The lock carries hashes and names no host, so it installs from whatever index the machine is configured for. torch is
left out, and what it alone needs: its build (CPU or CUDA) and so its hash differ between machines; requirements-torch.txt
pins its version.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
LOCK = REPOSITORY / "requirements.lock"
HEADER = "# Made by `make lock` from requirements.in and the dev extra of pyproject.toml. Do not edit.\n"
NAMES_A_HOST = re.compile(r"https?://|--(extra-)?index|--find-links|--trusted-host")


def direct_requirements() -> list[str]:
    """What we ask for by name: the product's list and the developers'."""
    lines = (REPOSITORY / "requirements.in").read_text().splitlines()
    product = [wanted for line in lines if (wanted := line.partition("#")[0].strip())]
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [*product, *extras["dev"]]


def _name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!; ]", requirement, maxsplit=1)[0]).lower()


def problems(lock: str) -> list[str]:
    """Why this lock must be compiled anew; empty when it serves."""
    locked = {_name(line) for line in lock.splitlines() if re.match(r"[A-Za-z0-9]", line)}
    found = [
        f"{wanted} is not in requirements.lock: run `make lock`"
        for wanted in direct_requirements()
        if _name(wanted) not in locked
    ]
    if "torch" in locked:
        found.append("requirements.lock names torch, whose hash differs between machines: run `make lock`")
    found += [
        f"requirements.lock names a host: {line.strip()}" for line in lock.splitlines() if NAMES_A_HOST.search(line)
    ]
    return found


def main() -> int:
    """`--check` only looks; other arguments go to uv (`--upgrade`)."""
    if sys.argv[1:] == ["--check"]:
        found = problems(LOCK.read_text())
        print("\n".join(found) or f"{LOCK.name} is current")
        return bool(found)
    uv = Path(sys.executable).parent / "uv"
    with tempfile.TemporaryDirectory() as folder:
        wanted, left_out, output = Path(folder, "wanted.in"), Path(folder, "left-out"), Path(folder, "lock")
        left_out.write_text("torch\n")
        wanted.write_text("\n".join(direct_requirements()) + "\n")
        if LOCK.exists():  # uv keeps the versions it finds there; `make lock ARGS=--upgrade` takes newer ones
            output.write_text(LOCK.read_text())
        command = [
            *(str(uv), "pip", "compile", str(wanted), "--universal", "--python-version", "3.11", "--generate-hashes"),
            *("--excludes", str(left_out), "--no-header", "--no-annotate", "--quiet", "-o", str(output)),
        ]
        code = subprocess.run([*command, *sys.argv[1:]], stdout=subprocess.DEVNULL, check=False).returncode
        if code:
            return code
        lock = HEADER + output.read_text()
    found = problems(lock)
    print("\n".join(found) or f"{LOCK.name}: {lock.count('==')} packages")
    if not found:
        LOCK.write_text(lock)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
