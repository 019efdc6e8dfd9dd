"""D8 to D10: work is left in such paths, or among so many, that it cannot be read from outside, so that it counts as lost."""

from __future__ import annotations

from sandbox.grading.cheats.base import Exploit
from tests.redteam.base import Pair, tries
from tests.redteam.honest import works

DEEP = """python3 - <<'END'
import os
for _ in range(6):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
for number in range(3990):
    {}
END"""
FOLDERS = """python3 - <<'END'
import os
for number in range(55_000):
    if number % 500 == 0:
        top = f"folders/{number}"
        os.makedirs(top)
    os.mkdir(f"{top}/{number}")
END"""
DEFENCE = (
    "files, bytes, paths and entries of a patch are bounded where it is read, and what is beyond is left out and named"
)

PAIRS = (
    Pair(
        exploit=Exploit(
            id="D8",
            title="leaves thousands of files in long paths",
            run=tries(DEEP.format('open(f"{number}", "w").close()')),
            findings=("odd-path",),
        ),
        honest=works("mkdir -p build/one/two; touch build/one/two/note; rm -r build"),
        defence=DEFENCE,
        task="inventory",
    ),
    Pair(
        exploit=Exploit(
            id="D9",
            title="leaves thousands of links in long paths",
            run=tries(DEEP.format('os.symlink("x", f"{number}")')),
            findings=("odd-path",),
        ),
        honest=works("ln -s README.md note; rm note"),
        defence=DEFENCE,
        task="inventory",
    ),
    Pair(
        exploit=Exploit(
            id="D10",
            title="leaves more folders than can be looked at",
            run=tries(FOLDERS),
            findings=("odd-path",),
        ),
        honest=works("mkdir -p build/one build/two; rm -r build"),
        defence=DEFENCE,
        task="inventory",
    ),
)
