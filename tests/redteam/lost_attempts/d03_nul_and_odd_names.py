"""D3: NUL characters in paths, arguments and output, and names that are no text, for a database that takes neither."""

from __future__ import annotations

from sandbox.grading.cheats.base import Exploit
from tests.redteam.base import Pair, tries
from tests.redteam.honest import works

NAMES = r"""python3 -c "
import os
for name in (b'x\xff.py', b'a\nb.py', b'\xed\xa0\x80.py'):
    with open(name, 'wb') as file:
        file.write(b'\0')
" """

PAIR = Pair(
    exploit=Exploit(
        id="D3",
        title="NUL and names that are no text",
        run=tries(NAMES, r"printf 'a\0b\377\355\240\200'", "echo a\0b", "ls -b; ls"),
        findings=("odd-path",),
    ),
    honest=works("printf 'a\\tb\\n' | od -c", "find . -print0 | tr '\\0' '\\n' | head"),
    defence="text is made storable where it enters; names that are no text are left out of the patch and reported",
    task="inventory",
)
