"""The image that is made of this machine."""

from __future__ import annotations

import io
import tarfile

from sandbox.backends.docker import image


def test_holds_no_program_and_is_the_same_each_time() -> None:
    archive = image.build_archive()
    assert archive == image.build_archive()
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        entries = {entry.name: entry for entry in opened}
        users = opened.extractfile("etc/passwd")
        assert users is not None and b"dev:x:1000:1000:" in users.read()
    assert not [name for name, entry in entries.items() if entry.isfile() and not name.startswith("etc/")]
    assert {"home/dev", "tmp", "proc", "w", "dev/shm"} <= set(entries)
    assert entries["tmp"].mode == 0o1777
    assert len(archive) < 4 << 20
