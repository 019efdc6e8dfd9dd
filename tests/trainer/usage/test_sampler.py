"""What a real process, its descendants and its host use."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainer.usage import BackgroundSampler, GpuUsage, Sampler, Usage, nvidia

MIB = 1 << 20
BUSY = "import sys; held = bytearray(96 << 20)\nprint('up', flush=True)\nwhile True: pass"


def eventually(condition: Callable[[], bool], *, seconds: float = 30.0, what: str) -> None:
    end, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, f"{what} was not seen within {seconds:g} s"
        pause.wait(0.2)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """Holds 96 MiB and one core."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


def test_a_descendant_counts_with_its_cpu_and_memory(child: subprocess.Popen[str], tmp_path: Path) -> None:
    sampler = Sampler(disk=tmp_path)
    assert child.stdout is not None
    before = sampler.sample()
    child.stdout.readline()
    found: list[Usage] = []

    def seen() -> bool:
        found.append(sampler.sample())
        return found[-1].cpu > 0.15 and found[-1].memory > before.memory + 48 * MIB

    eventually(seen, what="the child's core and memory")
    usage = found[-1]
    assert usage.cpu <= usage.host_cores + 0.5 and 0 < usage.host_cpu <= 1
    assert 0 < usage.memory < usage.host_memory_total and 0 < usage.host_memory <= usage.host_memory_total
    assert usage.disk_used is not None and usage.disk_total is not None and 0 < usage.disk_used < usage.disk_total
    assert Usage.model_validate_json(usage.model_dump_json()) == usage, "it crosses the wire unchanged"


def test_whoever_asks_a_background_sampler_waits_for_nothing() -> None:
    sampler = BackgroundSampler(seconds=0.05).start()
    try:
        eventually(lambda: sampler.latest is not None, what="the first measurement")
    finally:
        sampler.stop()


def test_gpus_as_the_driver_prints_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in nvidia-smi's place prints its format. No test machine has a GPU."""
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia.gpus() == [], "no driver, no GPU"
    rows = ("0, NVIDIA H100 80GB HBM3, 87, 61440, 81559, 512.31", "1, Tesla T4, [N/A], 12, 15360, [Not Supported]")
    program.write_text(
        "#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows) + "echo '2, MIG, [N/A], [N/A], [N/A], 1'\n"
    )
    program.chmod(0o755)
    first, second = nvidia.gpus()
    assert first == GpuUsage(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        utilisation=0.87,
        memory=61440 * MIB,
        memory_total=81559 * MIB,
        power=512.31,
    )
    assert (second.utilisation, second.power, second.memory) == (None, None, 12 * MIB)
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2\nexit 9\n")
    assert nvidia.gpus() == [], "a broken driver costs the GPUs alone"
