"""Real pip in real sandboxes: what the policy allows installs, and nothing else in the world can be reached."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.backends.base import Backend, EnvSpec, Limits, Sandbox
from sandbox.network import AuditRecord, Bounds, NpmRules, PythonRules, RegistryPolicy, registry_only
from sandbox.network.audit import read
from tests.sandbox.network.local_registry import LocalRegistry, wheel
from tests.sandbox.network.running import upstreams_of
from tests.support.fork_backend import fork

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
LIMITS = Limits(memory_bytes=1 << 30, call_seconds=110)
DENIED = "denied by the task's network policy: "
PIP = "python3 -m pip install --no-cache-dir --target lib"


@pytest.fixture
def env(tmp_path: Path) -> EnvSpec:
    (tmp_path / "layer/repo").mkdir(parents=True)
    return EnvSpec(layers=(tmp_path / "layer",))


@pytest.fixture
def rows() -> list[AuditRecord]:
    return []


async def said(box: Sandbox, command: str) -> tuple[int | None, str]:
    result = await box.exec(command)
    return result.exit_code, result.output.decode(errors="replace")


async def need_pip(box: Sandbox) -> None:
    if (await box.exec("python3 -m pip --version")).exit_code != 0:
        pytest.skip("the Python that sandboxes get has no pip: install python3-pip")


def shelf(registry: LocalRegistry) -> RegistryPolicy:
    """Packages, and a policy that has something against most of them."""
    dated = {"upload_time": "2024-01-01T00:00:00Z"}
    registry.add_wheel("tree", "2.0", requires=("leaf",), **dated)
    registry.add_wheel("leaf", "1.0", **dated)
    registry.add_wheel("leaf", "1.1", **dated)
    registry.add_wheel("leaf", "1.2", upload_time="2024-07-01T00:00:00Z")
    registry.add_wheel("target-lib", "3.0", **dated)
    registry.add("renamed", "renamed-1.0-py3-none-any.whl", wheel("renamed", "1.0", {"target_lib.py": ""}), **dated)
    registry.add_wheel("swapped", "1.0", core_metadata=None, **dated)
    registry.files["/packages/swapped-1.0-py3-none-any.whl"] = wheel("swapped", "1.0", {"evil.py": ""})
    return RegistryPolicy(
        python=PythonRules(
            deny=frozenset({"Target.Lib"}), deny_modules=frozenset({"target_lib"}), max_versions={"leaf": "1.1"}
        ),
        before=datetime(2024, 6, 1, tzinfo=UTC),
    )


async def test_pip_installs_what_the_policy_allows(
    backend: Backend, env: EnvSpec, registry: LocalRegistry, rows: list[AuditRecord]
) -> None:
    net = registry_only(shelf(registry), upstreams_of(registry), rows.append)
    async with await backend.start(env, limits=LIMITS, net=net) as box:
        await need_pip(box)
        use = "PYTHONPATH=lib python3 -c 'import tree, leaf; print(leaf.VERSION)'"
        code, text = await said(box, f"{PIP} tree && {use}")
        assert code == 0 and text.endswith("\n1.1\n"), text
        wheels = ["/files/tree/tree-2.0-py3-none-any.whl", "/files/leaf/leaf-1.1-py3-none-any.whl"]
        expected = {path + end for path in wheels for end in ("", ".metadata")} | {"/simple/tree/", "/simple/leaf/"}
        assert {row.path for row in rows} == expected
        assert all(row.decision == "allowed" and row.sandbox == box.name for row in rows)
        code, text = await said(box, f"{PIP} TARGET_lib")
        assert code == 1 and f"{DENIED}package target-lib is not available to this task" in text


@pytest.mark.slow
async def test_pip_says_why_it_cannot(
    backend: Backend, env: EnvSpec, registry: LocalRegistry, rows: list[AuditRecord]
) -> None:
    net = registry_only(shelf(registry), upstreams_of(registry), rows.append)
    async with await backend.start(env, limits=LIMITS, net=net) as box:
        await need_pip(box)
        for wanted, why in {
            "'target-lib>=3'": "from versions: 0+denied.by.the.network.policy)",
            "leaf==1.2": "0+some.versions.denied.by.the.network.policy, 1.0, 1.1)",
            "renamed": f"{DENIED}renamed-1.0-py3-none-any.whl holds the module target_lib",
            "swapped": f"{DENIED}swapped-1.0-py3-none-any.whl does not have the SHA-256 digest",
        }.items():
            code, text = await said(box, f"{PIP} {wanted}")
            assert code == 1 and why in text, text
        assert (await box.exec("ls lib")).exit_code == 2  # nothing was installed


async def test_nothing_else_can_be_reached(
    backend: Backend, env: EnvSpec, registry: LocalRegistry, rows: list[AuditRecord]
) -> None:
    net = registry_only(RegistryPolicy(), upstreams_of(registry), rows.append)
    probe = f"""
import json, socket
found = {{}}
for name, family, kind, address in [
    ("registry itself", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {registry.port})),
    ("raw address", socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)),
    ("public resolver", socket.AF_INET, socket.SOCK_STREAM, ("8.8.8.8", 53)),
    ("IPv6", socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 80)),
    ("metadata service", socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
    ("datagram", socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)),
    ("broadcast", socket.AF_INET, socket.SOCK_DGRAM, ("255.255.255.255", 9)),
    ("proxy", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 3141)),
]:
    with socket.socket(family, kind) as end:
        end.settimeout(10)
        try:
            end.connect(address)
            found[name] = "reached"
        except OSError as error:
            found[name] = error.errno
try:
    found["name"] = socket.getaddrinfo("example.org", 80)[0][4][0]
except OSError:
    found["name"] = "unknown"
with socket.create_connection(("127.0.0.1", 3141)) as end:
    end.sendall(b"CONNECT example.org:443 HTTP/1.1\\r\\nHost: example.org:443\\r\\n\\r\\n")
    found["tunnel"] = end.recv(100).split()[1].decode()
print(json.dumps(found))
"""
    async with await backend.start(env, limits=LIMITS, net=net) as box:
        result = await box.exec("python3 -", stdin=probe.encode())
        found = json.loads(result.output)
        assert found.pop("proxy") == "reached" and found.pop("tunnel") == "405" and found.pop("name") == "unknown"
        assert set(found.values()) <= {101, 111, 13, 1, 99}, found  # unreachable, refused, or forbidden
        index = f"--index-url http://127.0.0.1:{registry.port}/simple/"
        assert (await box.exec(f"python3 -m pip download --retries 0 {index} leaf")).exit_code == 1
        assert (await box.exec("python3 -m pip download --retries 0 'leaf @ http://192.0.2.1/leaf.whl'")).exit_code == 1
    assert registry.asked == []


async def test_without_a_policy_there_is_no_way_out(backend: Backend, env: EnvSpec) -> None:
    async with await backend.start(env, limits=LIMITS) as box:
        code, text = await said(box, "echo [$PIP_INDEX_URL]; exec 3<>/dev/tcp/127.0.0.1/3141")
        assert code == 1 and text.startswith("[]\n")


async def test_bounds_hold_for_pip(
    backend: Backend, env: EnvSpec, registry: LocalRegistry, rows: list[AuditRecord]
) -> None:
    registry.add_wheel("small", "1.0", core_metadata=None)
    registry.add("large", "large-1.0-py3-none-any.whl", wheel("large", "1.0", {"large.py": "x" * 300_000}))
    policy = RegistryPolicy(bounds=Bounds(requests=6, bytes=200_000, file_bytes=1 << 20))
    async with await backend.start(
        env, limits=LIMITS, net=registry_only(policy, upstreams_of(registry), rows.append)
    ) as box:
        await need_pip(box)
        code, text = await said(box, f"{PIP} large")
        assert code == 1 and "denied by the task's network policy: more than 200000 bytes" in text
        code, text = await said(box, f"for i in 1 2 3 4 5 6 7 8; do {FETCH}; done")
        assert text.split() == ["429"] * 8  # the bytes are used up, and then the requests are
    assert sum(row.count for row in rows) == 10 and rows[-1].rule == "requests" and rows[-1].count > 1


FETCH = "curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:3141/simple/small/"


async def test_many_sandboxes_of_one_policy(
    backend: Backend, env: EnvSpec, registry: LocalRegistry, rows: list[AuditRecord], tmp_path: Path
) -> None:
    """Forks of a snapshot share the policy, not the bounds; each one's rows carry its name."""
    registry.add_wheel("small", "1.0")
    net = registry_only(RegistryPolicy(bounds=Bounds(requests=2)), upstreams_of(registry), rows.append)
    async with await backend.start(env, limits=LIMITS, net=net) as first:
        assert (await said(first, f"export A=1; {FETCH}"))[1] == "200 "
        snapshot = await first.snapshot(tmp_path / "snapshot")
    boxes = await fork(backend, env, snapshot, 3, limits=LIMITS, net=net)
    try:
        everything = await asyncio.gather(*(said(box, f"echo $A; {FETCH}; {FETCH}; {FETCH}") for box in boxes))
    finally:
        await asyncio.gather(*(box.close() for box in boxes))
    assert [text for _, text in everything] == ["1\n200 200 429 "] * 3
    assert {row.sandbox for row in rows} == {first.name, *(box.name for box in boxes)} and len(rows) == 10


async def test_closing_leaves_nothing_in_the_host(
    backend: Backend, env: EnvSpec, registry: LocalRegistry, rows: list[AuditRecord]
) -> None:
    registry.special["/simple/slow/"] = registry.hang
    net = registry_only(RegistryPolicy(), upstreams_of(registry), rows.append)
    async with await backend.start(env, limits=LIMITS, net=net) as box:
        await box.exec("true")
    tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        registry.hanging.clear()
        async with await backend.start(env, limits=LIMITS, net=net) as box:
            await box.exec("curl -s http://127.0.0.1:3141/simple/slow/ & curl -s http://127.0.0.1:3141/ >/dev/null")
            async with asyncio.timeout(30):
                await registry.hanging.wait()
    async with asyncio.timeout(30):
        while len(asyncio.all_tasks()) > tasks or len(os.listdir("/proc/self/fd")) > descriptors:
            await asyncio.sleep(0.01)
    assert [row.rule for row in rows if row.path == "/simple/slow/"] == ["client"] * 3


HOST = """
import asyncio, json, sys
from pathlib import Path
from sandbox.backends.base import EnvSpec
from sandbox.backends.namespaces.backend import NamespacesBackend
from sandbox.network import AuditFile, RegistryPolicy, Upstream, Upstreams, registry_only

async def main():
    upstreams = Upstreams(python=(Upstream(url=sys.argv[2], private=True),))
    net = registry_only(RegistryPolicy(), upstreams, AuditFile(Path(sys.argv[3])))
    backend = NamespacesBackend()
    box = await backend.start(EnvSpec(layers=(Path(sys.argv[1]),)), net=net)
    await box.exec("curl -s -o /dev/null http://127.0.0.1:3141/simple/small/")
    running = asyncio.create_task(box.exec("curl -s http://127.0.0.1:3141/simple/slow/"))
    print(json.dumps({"zygote": backend._zygote._process.pid}), flush=True)
    await running

asyncio.run(main())
"""


async def test_kill_9_of_the_host_leaves_nothing(env: EnvSpec, registry: LocalRegistry, tmp_path: Path) -> None:
    """In the middle of a download: processes, sockets and temporary files go, the audit log stays readable."""
    from tests.sandbox.backends.namespaces.test_leftovers import descendants, living, wait_until

    registry.add_wheel("small", "1.0")
    registry.special["/simple/slow/"] = registry.hang
    log = tmp_path / "audit.jsonl"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", HOST, str(env.layers[0]), registry.index, str(log)]
    variables = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary)}
    host = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, env=variables)
    assert host.stdout is not None
    async with asyncio.timeout(60):
        zygote = json.loads(await host.stdout.readline())["zygote"]
        await registry.hanging.wait()
    everything = descendants(zygote)
    host.kill()
    async with asyncio.timeout(30):
        await host.wait()
    await asyncio.to_thread(wait_until, lambda: not living(everything))
    assert list(temporary.iterdir()) == []
    assert [(row.path, row.decision) for row in read(log)] == [("/simple/small/", "allowed")]


@pytest.mark.slow
@pytest.mark.toolchains
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: apt install npm")
async def test_npm_installs_what_the_policy_allows(
    backend: Backend, env: EnvSpec, registry: LocalRegistry, rows: list[AuditRecord]
) -> None:
    registry.add_npm("@scope/tree", "1.0.0", dependencies={"leaf": "^1.0.0"})
    registry.add_npm("leaf", "1.0.0")
    registry.add_npm("leaf", "1.1.0")
    registry.add_npm("target", "1.0.0")
    policy = RegistryPolicy(python=None, npm=NpmRules(deny=frozenset({"target"}), max_versions={"leaf": "1.0.0"}))
    limits = Limits(memory_bytes=2 << 30, call_seconds=110)
    async with await backend.start(
        env, limits=limits, net=registry_only(policy, upstreams_of(registry), rows.append)
    ) as box:
        if (await box.exec("npm --version")).exit_code != 0:
            pytest.skip("the host's npm is not below /usr, where sandboxes see it")
        code, text = await said(box, "npm install @scope/tree && node -p 'require(\"leaf\")'")
        assert code == 0 and text.endswith("\n1.0.0\n"), text
        code, text = await said(box, "npm install target")
        assert code != 0 and "denied by the task's network policy: package target is not available" in text
        code, text = await said(box, "npm install leaf@1.1.0")
        assert code != 0 and "some versions of leaf are denied by the task's network policy" in text
    assert {row.method for row in rows} == {"GET"} and all(row.path.startswith("/npm/") for row in rows)
