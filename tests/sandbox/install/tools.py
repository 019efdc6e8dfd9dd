"""The test tools that this interpreter has installed, as wheels for a registry on the loopback; and code to install."""

from __future__ import annotations

import importlib.metadata
import io
import os
import zipfile

from tests.sandbox.network.local_registry import LocalRegistry

TOOLS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "setuptools")
STEPS = '''def steps(start, stop, by=1):
    """Numbers from start up to stop."""
    found = []
    while start < stop:
        found.append(start)
        start += by
    return found
'''
TOTAL = '''def total(numbers):
    """The sum of all numbers."""
    found = 0
    for number in numbers:
        found += number
    return found
'''


def packed(name: str) -> tuple[str, bytes]:
    """A wheel of what this interpreter has installed."""
    found = importlib.metadata.distribution(name)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for file in found.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and file.locate().is_file():
                entry = zipfile.ZipInfo(str(file))
                entry.external_attr = (0o100755 if os.access(file.locate(), os.X_OK) else 0o100644) << 16
                archive.writestr(entry, file.locate().read_bytes())
    safe = found.metadata["Name"].replace("-", "_")
    return f"{safe}-{found.version}-py3-none-any.whl", data.getvalue()


def add_tools(registry: LocalRegistry) -> None:
    """What the installation of any Python checkout needs."""
    for name in TOOLS:
        registry.add(name, *packed(name))
