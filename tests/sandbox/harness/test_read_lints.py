import pytest

from sandbox.harness.errors import HarnessFailure, ToolFailure
from sandbox.harness.tools import read_lints
from sandbox.harness.types import ToolErrorKind


async def test_findings_have_place_code_and_message(call):
    await call("write_file", path="bad.py", content="import os\n\nprint(undefined)\n")
    expected = "bad.py:1:8: F401 `os` imported but unused\nbad.py:3:7: F821 Undefined name `undefined`"
    assert (await call("read_lints", paths=["bad.py"])).output == expected
    assert (await call("read_lints")).output == expected


async def test_nothing_to_say(call):
    assert (await call("read_lints")).output == "no lints"
    assert (await call("read_lints", paths=["."])).output == "no lints"
    assert (await call("read_lints", paths=["notes.txt"])).output == "error: not a Python file: notes.txt"
    assert (await call("read_lints", paths=["nope.py"])).output == "error: no such file: nope.py"


async def test_a_syntax_error_is_a_finding(call):
    await call("write_file", path="broken.py", content="def f(:\n")
    assert (await call("read_lints", paths=["broken.py"])).output.startswith("broken.py:1:7: E999 ")


async def test_configuration_of_the_checkout_has_no_say(call):
    await call("write_file", path="ruff.toml", content='[lint]\nignore = ["F401"]\n')
    await call("write_file", path="pyproject.toml", content='[tool.ruff]\nexclude = ["*"]\n')
    await call("write_file", path="bad.py", content="import os\n")
    assert "F401" in (await call("read_lints", paths=["bad.py"])).output


async def test_bytes_that_are_no_text(call, sandbox):
    await sandbox.write("latin.py", b"x = '\xe9'\n")
    result = await call("read_lints", paths=["latin.py"])
    assert result.error is not None or "E902" in result.output or "E999" in result.output


async def test_options_in_a_file_name_are_no_options():
    assert await read_lints.lint("--config=evil.py", b"import os\n") == [
        "--config=evil.py:1:8: F401 `os` imported but unused"
    ]


async def test_a_missing_linter_is_ours_to_mend(monkeypatch):
    monkeypatch.setattr(read_lints, "ruff_path", lambda: "/nonexistent/ruff")
    with pytest.raises(HarnessFailure) as failure:
        await read_lints.lint("a.py", b"x = 1\n")
    assert failure.value.kind is ToolErrorKind.INFRASTRUCTURE


async def test_a_linter_that_never_ends_is_stopped(monkeypatch, tmp_path):
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(read_lints, "ruff_path", lambda: str(slow))
    monkeypatch.setattr(read_lints, "LINT_SECONDS", 0.2)
    with pytest.raises(ToolFailure) as failure:
        await read_lints.lint("a.py", b"x = 1\n")
    assert failure.value.kind is ToolErrorKind.TIMEOUT


async def test_a_file_that_breaks_the_linter_is_the_policys_fault(monkeypatch, tmp_path):
    fragile = tmp_path / "fragile"
    fragile.write_text("#!/bin/sh\ngrep -q bomb && kill -SEGV $$\nexit 0\n")
    fragile.chmod(0o755)
    monkeypatch.setattr(read_lints, "ruff_path", lambda: str(fragile))
    monkeypatch.setattr(read_lints, "LINT_SECONDS", 20)
    assert await read_lints.lint("a.py", b"x = 1\n") == []
    with pytest.raises(ToolFailure) as failure:
        await read_lints.lint("a.py", b"bomb\n")
    assert failure.value.kind is ToolErrorKind.REFUSED


async def test_findings_without_end_are_cut(monkeypatch):
    monkeypatch.setattr(read_lints, "MAX_FOUND_BYTES", 100_000)
    found = await read_lints.lint("a.py", b"a\n" * 5000)
    assert 50 < len(found) < 1000
    assert found[0] == "a.py:1:1: F821 Undefined name `a`" and found[-1] == "[... more lints of a.py ...]"
