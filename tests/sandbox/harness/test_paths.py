import pytest

from sandbox.backends.base import WORKDIR
from sandbox.harness.errors import ToolFailure
from sandbox.harness.paths import checkout_path
from sandbox.harness.types import ToolErrorKind


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a.py", "a.py"),
        ("./a.py", "a.py"),
        ("x/../a.py", "a.py"),
        ("x//y/", "x/y"),
        (".", "."),
        (WORKDIR, "."),
        (f"{WORKDIR}/x/a.py", "x/a.py"),
        ("../repo/a.py", "a.py"),
    ],
)
def test_one_spelling_for_each_file(written, meant):
    assert checkout_path(written) == meant


@pytest.mark.parametrize(
    "written", ["..", "../x", "/etc/passwd", "/", "", "a\0b", f"{WORKDIR}-other/a", "../../../../x"]
)
def test_outside_is_refused(written):
    with pytest.raises(ToolFailure) as failure:
        checkout_path(written)
    assert failure.value.kind is ToolErrorKind.REFUSED
