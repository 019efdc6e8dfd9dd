"""What is fuzzed: one function a parser, from bytes to nothing. Only the refusals that it documents are caught.

A new parser of foreign bytes = one new function here, with a seed that it accepts.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from composer_web.gateway.errors import BadRequest
from composer_web.gateway.serving import admission, openai_types, transcripts
from sandbox.backends.base import EndReason, ExecResult
from sandbox.backends.namespaces.inside import protocol
from sandbox.errors import PackageError, TaskInvalid
from sandbox.formats import atif, harbor, messages, swebench
from sandbox.formats.base import FormatRefused, read_json
from sandbox.formats.diffs import PatchRefused, parse_diff
from sandbox.grading.adapters import ADAPTERS, junit
from sandbox.grading.adapters.base import Order
from sandbox.grading.audit.attempt import shell
from sandbox.grading.verifiers import calls
from sandbox.harness.types import ToolCall
from sandbox.install.recipes.python import requirements
from sandbox.network import paths
from sandbox.network.policy import Denied
from sandbox.repositories import archives
from sandbox.repositories.checkout import ini, parse_toml
from sandbox.repositories.history import TreeFile
from sandbox.tasks.git_scan import scan_git
from sandbox.tasks.store import load_bundle
from trainer.errors import CorruptManifest, CorruptPayload
from trainer.policy.rendering.chat import read_calls
from trainer.policy.rendering.reading import hermes_blocks
from trainer.policy.rendering.toy import extract
from trainer.sft.conversations.readers import conversation_of
from trainer.weights import codec, manifest

_FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))
_TREE = {"a.py": TreeFile(b"one\ntwo\nthree\n"), "b/c.py": TreeFile(b"x = 1\n")}
_ORDER = Order(files=("test_a.py",), ids=("test_a.py::test_one",), seconds=1.0, report="report.xml")
_WORD = "0123456789abcdef"
_FORMS = tuple(codec.FORMATS.values())


@dataclass(frozen=True)
class Target:
    """`seeds` are inputs that the parser accepts, or nearly."""

    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...] = (b"",)


def diff(data: bytes) -> None:
    with contextlib.suppress(PatchRefused):
        for change in parse_diff(data, _TREE.get).changes:
            assert change.path and not change.path.startswith("/") and ".." not in change.path.split("/")


def junit_report(data: bytes) -> None:
    with contextlib.suppress(junit.ReportRefused):
        junit.parse(data, 100)


def test_reports(data: bytes) -> None:
    result = ExecResult(exit_code=0, ended=EndReason.EXIT, output=data, total_bytes=len(data), seconds=0.1, background=0,
                        result=data)  # fmt: skip
    for adapter in ADAPTERS.values():
        invocation = adapter.invoke(_ORDER)
        if invocation.secret:
            marked = data.replace(_WORD.encode(), invocation.secret.encode())
            result = ExecResult(0, EndReason.EXIT, data, len(data), 0.1, 0, marked)
        adapter.read(_ORDER, invocation, result)


def records(data: bytes) -> None:
    calls.parse_records(data)


def archive(data: bytes) -> None:
    """The first byte says in what the rest is wrapped, so that the fuzzer gets past the compression."""
    kind, content = data[:1], data[1:]
    name = "upload.zip" if kind == b"z" else "upload.tar.gz"
    (_FOLDER / name).write_bytes(gzip.compress(content, 1) if kind == b"t" else content)
    for read in (archives.members, archives.uploaded):
        with contextlib.suppress(PackageError):
            for member in read(_FOLDER / name):
                assert not member.path.startswith("/") and ".." not in member.path.split("/")


def git_folder(data: bytes) -> None:
    files = {
        "HEAD": b"ref: refs/heads/main\n",
        "refs/heads/main": b"0" * 40 + b"\n",
        "objects/00/" + "0" * 38: zlib.compress(data),
        "index": data,
    }
    there: dict[str, Path] = {}
    for number, (entry, content) in enumerate(files.items()):
        there[entry] = _FOLDER / f"git-{number}"
        there[entry].write_bytes(content)
    list(scan_git(there))


def frames(data: bytes) -> None:
    with contextlib.suppress(protocol.ProtocolError):
        decoder = protocol.Decoder()
        for at in range(0, len(data), 7):
            decoder.feed(data[at : at + 7])


def weight_block(data: bytes) -> None:
    form = _FORMS[data[0] % len(_FORMS)] if data else _FORMS[0]
    base = np.arange(64 * form.size, dtype=np.uint8)
    with contextlib.suppress(CorruptPayload):
        codec.decode(base, data[1:], form, np.empty_like(base), using=codec.loops(compiled=False))


def weight_manifest(data: bytes) -> None:
    with contextlib.suppress(CorruptManifest):
        manifest.parse(data, "v000001")


def bundle(data: bytes) -> None:
    (_FOLDER / "bundle.json").write_bytes(data)
    with contextlib.suppress(TaskInvalid):
        load_bundle(_FOLDER / "bundle.json")


def atif_trajectory(data: bytes) -> None:
    with contextlib.suppress(FormatRefused):
        atif.load(data)


def conversation(data: bytes) -> None:
    with contextlib.suppress(FormatRefused):
        conversation_of(read_json(data, "row"), source="s", place="1")


def chat_messages(data: bytes) -> None:
    for load in (messages.load, messages.load_mini):
        with contextlib.suppress(FormatRefused):
            load(data)


def swebench_rows(data: bytes) -> None:
    with contextlib.suppress(FormatRefused):
        swebench.load(data.decode("utf-8", "replace"))


def harbor_task(data: bytes) -> None:
    with contextlib.suppress(FormatRefused):
        harbor.from_files("task", {"task.toml": data, "instruction.md": b"Mend it."})


def index_request(data: bytes) -> None:
    with contextlib.suppress(Denied):
        paths.parse("/" + data.decode("latin-1"))


def project_files(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    parse_toml(text)
    ini(text)
    for line in text.split("\n"):
        requirements.parse(line)


def shell_command(data: bytes) -> None:
    shell.split(data.decode("utf-8", "replace"))


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("p/a.py")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"x\n"))
    return out.getvalue()


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("p/a.py", "x\n")
    return out.getvalue()


def _delta() -> bytes:
    base = np.arange(128, dtype=np.uint8)
    new = base.copy()
    new[5] = 9
    return codec.encode(base, new, codec.FORMATS["bfloat16"], using=codec.loops(compiled=False))


def chat_request(data: bytes) -> None:
    """What clients of the gateway send."""
    with contextlib.suppress(BadRequest):
        request = openai_types.parse(data)
        transcripts.digest(request.messages, request.offered, "salt")
        admission.wishes(request, {})


def tool_calls(data: bytes) -> None:
    """What a policy writes as calls, and their way through storage."""
    text = data.decode("utf-8", "replace")
    for syntax in (hermes_blocks, extract):
        calls: tuple[ToolCall, ...] = ()
        with contextlib.suppress(ValueError):
            calls = read_calls(syntax(text) or ())
        for call in calls:
            assert ToolCall.model_validate_json(call.model_dump_json()) == call


_PASS = {"kind": "test", "id": "test_a.py::test_one", "when": "call", "status": "passed", "seconds": 0.1}
_SAID = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes", "tool_calls": []}]

TARGETS: dict[str, Target] = {
    "archive": Target(archive, (b"t" + _tar(), b"z" + _zip(), b"x")),
    "conversation": Target(
        conversation,
        (b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","tool_calls":[]}]}',),
    ),
    "atif": Target(atif_trajectory, (b'{"schema_version":"ATIF-v1.8","agent":{"name":"a","version":"1"},"steps":[]}',)),
    "bundle": Target(bundle, (b"{}",)),
    "chat-request": Target(
        chat_request, (json.dumps({"model": "production", "messages": _SAID, "stop": "x"}).encode(),)
    ),
    "diff": Target(diff, (b"--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",)),
    "frames": Target(frames, (protocol.encode({"a": 1}, b"blob"),)),
    "git": Target(git_folder, (b"commit 5\0hello", b"tree 0\0", b"DIRC\0\0\0\2\0\0\0\0")),
    "harbor": Target(harbor_task, (b'schema_version = "1.4"\n[verifier]\n',)),
    "junit": Target(
        junit_report, (b'<testsuites><testsuite><testcase classname="a" name="b" time="1"/></testsuite></testsuites>',)
    ),
    "messages": Target(chat_messages, (json.dumps(_SAID).encode(), json.dumps({"messages": _SAID}).encode())),
    "project-files": Target(
        project_files, (b"[tool.tox]\nx = 1\n", b"[testenv]\ndeps =\n  pytest>=7\n", b"a[b]>=1; x")
    ),
    "records": Target(records, (b"0 R 3\nabc1 E 1\nx",)),
    "registry-request": Target(
        index_request, (b"simple/toolz/", b"npm/@a/b/-/c.tgz", b"go/a.b/c/@v/v1.0.0.info", b"cargo/x")
    ),
    "shell": Target(shell_command, (b"cd a && FOO=$(cat x) bash -c 'echo \"$FOO\"' >out <<E\nx\nE\n",)),
    "swebench": Target(
        swebench_rows,
        (b'{"repo":"a/b","instance_id":"1","patch":"","problem_statement":"x","FAIL_TO_PASS":"[\\"t\\"]"}\n',),
    ),
    "tool-calls": Target(
        tool_calls,
        (
            b'{"name": "grep", "arguments": {"pattern": "\\ud800\\u0000"}}',
            b"<tool_call>" + json.dumps({"name": "a", "arguments": {"b": [1]}}).encode() + b"</tool_call>",
            b'{"name": "a", "arguments": ' + b"[" * 900 + b"]" * 900 + b"}",
        ),
    ),
    "test-reports": Target(test_reports, (_WORD.encode() + json.dumps(_PASS).encode() + b"\n", b'{"Action":"pass"}\n')),
    "weight-block": Target(weight_block, (bytes([0]) + _delta(), bytes([2]) + b"\0" * 16)),
    "weight-manifest": Target(weight_manifest, (b'{"version":1}',)),
}
