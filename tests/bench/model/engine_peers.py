"""What the engine is measured against: the library's two ways to generate, and vLLM's CPU build where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel
from transformers.utils import logging as library_logging

REPOSITORY = Path(__file__).parents[3]
VLLM = Path(os.environ.get("VLLM_VENV") or REPOSITORY / ".venv-vllm") / "bin" / "python"
VLLM_SECONDS = 900.0


def settings(new: int, temperature: float, group: int) -> GenerationConfig:
    """Sampling of exactly `new` tokens from the whole tempered distribution, `group` times a prompt."""
    return GenerationConfig(
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=True,
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        num_return_sequences=group,
        pad_token_id=0,
        eos_token_id=None,
    )


@torch.inference_mode()
def plain(model: PreTrainedModel, prompts: list[list[int]], config: GenerationConfig) -> None:
    """`generate`: one rectangle of equally long prompts."""
    ids = torch.tensor(prompts)
    out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)  # type: ignore[operator]
    assert out.shape == (len(prompts) * int(config.num_return_sequences), ids.shape[1] + int(config.max_new_tokens))


class Continuous:
    """`generate_batch`, whose manager is kept from call to call: starting it takes longer than the work."""

    def __init__(self, model: PreTrainedModel, *, tokens: int) -> None:
        """`tokens`: most tokens in its cache at a time."""
        library_logging.set_verbosity_error()
        self.model = model
        page = 32
        self.config = ContinuousBatchingConfig(
            page_size=page,
            num_blocks=2 * -(-tokens // page) + 64,
            max_batch_tokens=1024,
            use_async_batching=False,
            use_cuda_graph=False,
        )

    def __call__(self, prompts: list[list[int]], config: GenerationConfig) -> None:
        # It stops at no token that is named: it takes -1 as "none", and knows no least number of tokens.
        free = GenerationConfig(**{**config.to_dict(), "min_new_tokens": None, "eos_token_id": -1})
        results = self.model.generate_batch(  # type: ignore[operator]
            prompts, free, continuous_batching_config=self.config, persistent_manager=True, warmup=False
        )
        lengths = {len(result.generated_tokens) for result in results.values()}
        assert len(results) == len(prompts) * int(config.num_return_sequences), len(results)
        assert lengths == {int(config.max_new_tokens)}, lengths

    def close(self) -> None:
        self.model.destroy_cached_continuous_batching_manager()  # type: ignore[operator]


class Vllm:
    """vLLM's CPU build in processes of its own (`engine_vllm.py`), which generates one call of `asked` at a time.

    It does not give log-probabilities, which would make it slower.
    """

    def __init__(
        self, model: PreTrainedModel, asked: list[list[list[int]]], config: GenerationConfig, dtype: str
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="engine-vllm-")
        root = Path(self._folder.name)
        model.save_pretrained(root / "model")
        group = int(config.num_return_sequences)
        (root / "calls").write_text(json.dumps([{"prompts": prompts, "group": group} for prompts in asked]))
        script = str(Path(__file__).with_name("engine_vllm.py"))
        facts = [str(root / "model"), str(root / "calls"), str(config.max_new_tokens), str(config.temperature), dtype]
        variables = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        self._log = (root / "log").open("w+")
        self._process = subprocess.Popen(
            ["timeout", f"{VLLM_SECONDS:g}", str(VLLM), script, *facts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | variables,
        )

    def __call__(self) -> float:
        """Tokens per CPU second of the next call. Raises RuntimeError when vLLM has ended, with the end of what it said."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith('{"tokens"'):
                said = json.loads(line)
                return float(said["tokens"] / said["cpu_s"])
        self._log.seek(0)
        raise RuntimeError(f"vLLM ended before it answered:\n{self._log.read()[-2000:]}")

    def close(self) -> None:
        self._process.communicate()  # no more calls: it ends by itself
        self._log.close()
        self._folder.cleanup()


def without_vllm() -> str:
    """Why vLLM is not measured; empty where it can be."""
    return (
        ""
        if VLLM.exists()
        else "vLLM's CPU build is not installed; make test-vllm does (2.5 GB), or VLLM_VENV names it"
    )
