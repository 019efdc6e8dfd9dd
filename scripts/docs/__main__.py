"""`python -m scripts.docs`: build the site, or say why it cannot be built. `--check` leaves the built site as it is."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from scripts.docs.build import SITE, BuildError, build


def main() -> int:
    try:
        if "--check" in sys.argv[1:]:
            with tempfile.TemporaryDirectory(prefix="docs-") as folder:
                build(Path(folder, "site"))
        else:
            build(SITE)
            print(f"docs: {SITE / 'index.html'}")
    except BuildError as error:
        print(f"docs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
