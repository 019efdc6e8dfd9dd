"""`make bench NAME=gpu` on a CPU with tiny sizes: all of it runs, and its line has what the real one has."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

from tests.bench.model import gpu, gpu_codec
from tests.bench.model.trainer import PEER, REPOSITORY
from tests.bench.model.trainer_step import Sizes
from trainer.learning.flops import Shape, Tokens, shape_of

OURS = (
    *("step_s", "generate_s", "train_s", "weights_s", "tokens_per_s", "train_tokens_per_s"),
    *("mfu_step", "mfu_train", "mib"),
)
RATIOS = ("ratio_to_trl", "train_ratio_to_trl", "memory_ratio_to_trl")
PEAK = 1.5


def line_of(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.model.gpu", *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"DEVICE": "cpu", "PEAK_TFLOPS": str(PEAK)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert line["bench"] == "gpu" and re.fullmatch("[0-9a-f]{7,}", line["commit"])
    assert line["machine"]["gpu"] is None and "CPU seconds" in line["machine"]["clock"]
    numbers = line["metrics"] | line["peers"]
    assert all(isinstance(value, int | float) and 0 < value < math.inf for value in numbers.values()), numbers
    for model in ("dense", "moe"):
        found = {name: line["metrics"][f"{model}_{name}"] for name in OURS}
        parts = found["generate_s"] + found["train_s"] + found["weights_s"]
        assert found["step_s"] == pytest.approx(parts, rel=0.01)
        assert found["tokens_per_s"] < found["train_tokens_per_s"]
        assert max(found["mfu_step"], found["mfu_train"]) < 1
        assert found["mib"] > 100
    for mode in ("small", "fast"):
        for name in ("encode_host", "encode_device", "decode_host", "decode_device"):
            assert line["metrics"][f"codec_{name}_gb_s_{mode}"] > 0
        assert line["metrics"][f"codec_payload_share_{mode}"] < 0.2
    assert line["metrics"]["peak_tflops"] == PEAK
    return line


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_of_it_runs_on_a_cpu() -> None:
    line = line_of("--alone", "--rounds", "1", "--steps", "2", "--repeats", "2")
    assert line["machine"]["trl_skipped"] == "--alone" and not line["peers"] and not line["goals"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    not os.environ.get("TRL_PYTHON") and not (PEER / "complete").exists(),
    reason="needs TRL: TRL_PYTHON, or what `make bench NAME=trainer` makes at its first run",
)
def test_beside_trl() -> None:
    line = line_of("--rounds", "1", "--steps", "2", "--repeats", "2")
    assert line["machine"]["trl_skipped"] == ""
    for model in ("dense", "moe"):
        ours, trl = line["metrics"], line["peers"]
        assert all(f"{model}_{name}" in ours for name in RATIOS)
        assert ours[f"{model}_ratio_to_trl"] == pytest.approx(
            ours[f"{model}_tokens_per_s"] / trl[f"trl_{model}_tokens_per_s"], rel=0.01
        )
        assert line["goals"][f"{model}_ratio_to_trl"] and line["goals"][f"{model}_memory_ratio_to_trl"]


def test_what_it_cannot_measure_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(device: str) -> str:
        monkeypatch.setenv("DEVICE", device)
        with pytest.raises(SystemExit) as end:  # a text: it goes to stderr, and the exit status is 1
            gpu.main()
        return str(end.value.code)

    monkeypatch.delenv("PEAK_TFLOPS", raising=False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert refused("").startswith("This machine has no CUDA GPU")
    assert "PEAK_TFLOPS" in refused("cpu")
    assert "DEVICE=tpu" in refused("tpu")


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A100 80GB PCIe", 312.0),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", 989.4),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA L4", 121.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA A10", 125.0),
        ("NVIDIA A40", 149.7),
        ("NVIDIA B200", 2250.0),
    ],
)
def test_peaks_by_the_names_that_drivers_give(name: str, peak: float) -> None:
    assert gpu.peak_of(name, None) == peak * 1e12
    assert gpu.peak_of(name, "100") == 100e12


def test_other_names_need_a_peak() -> None:
    for name in ("NVIDIA L40", "NVIDIA A10G", "NVIDIA GeForce RTX 4090", "Tesla T4", "NVIDIA A1000"):
        with pytest.raises(ValueError, match="is not known here; give its dense bf16"):
            gpu.peak_of(name, None)
    for given in ("fast", "0", "-1", "nan", "inf"):
        with pytest.raises(ValueError, match=f"PEAK_TFLOPS={given}"):
            gpu.peak_of("NVIDIA H100 PCIe", given)


def test_figures_of_steps() -> None:
    shape = Shape(body=100.0, head=10.0, pair=1.0, learning_body=100.0, learning_head=10.0)
    step = {"step": 4.0, "generate": 1.0, "weights": 1.0, "tokens": 80.0, "mib": 5.0}
    steps = [step | {"computed": 60.0, "predicted": 20.0, "pairs": 400.0}] * 3
    found = gpu.figures(steps, shape, 1e6)
    forward = 2 * (100 * 60 + 10 * 20 + 1 * 400)
    assert found["mfu_train"] == pytest.approx(3 * forward / 2.0 / 1e6)
    assert found["mfu_step"] == pytest.approx(4 * forward / 4.0 / 1e6)
    assert (found["tokens_per_s"], found["train_tokens_per_s"], found["mib"]) == (20.0, 40.0, 5.0)


def test_models_of_the_sizes_that_it_names() -> None:
    with torch.device("meta"):
        models = {name: gpu.model_of(config) for name, config in gpu.FULL.items()}
    sizes = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    assert 0.55e9 < sizes["dense"] < 0.65e9 and 1.0e9 < sizes["moe"] < 1.2e9
    active = shape_of(models["moe"]).body + models["moe"].get_input_embeddings().weight.numel()
    assert 0.15 < active / sizes["moe"] < 0.4
    one = Tokens(1, 0, 0)
    assert shape_of(models["moe"]).flops(one) < 6 * active


def test_texts_of_all_sizes_fit_what_passes_between_the_processes() -> None:
    sizes = Sizes(2, 3, 4, 5, rows=6, trl_rows=7, device="cuda", threads=0)
    assert Sizes.read(sizes.text()) == sizes


def test_what_the_codec_measures_changes_as_a_step_does() -> None:
    before, after = gpu_codec.consecutive(1 << 16)
    changed = sum(int((before[name] != after[name]).sum()) for name in before) / (1 << 16)
    assert 0.001 < changed < 0.2
