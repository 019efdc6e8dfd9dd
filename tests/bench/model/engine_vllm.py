"""vLLM's side of `engine.py`: runs under an interpreter that has vLLM's CPU build, and prints one JSON line a call.

`python tests/bench/model/engine_vllm.py MODEL CALLS NEW TEMPERATURE DTYPE`: CALLS is a JSON file, a list of calls, each
`{"prompts": [[id, …], …], "group": n}`. A call is generated when a line comes on the standard input, so that turns can
alternate. What is counted is the processor time of this process and of all its descendants: vLLM works in several.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def processor_seconds(pid: int) -> float:
    """User and system time of a process and its living descendants, in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = {int(text) for path in Path(f"/proc/{pid}/task").glob("*/children") for text in path.read_text().split()}
    return own + sum(processor_seconds(child) for child in children)


def main() -> None:
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]  # of the other interpreter

    model, calls, new, temperature, dtype = sys.argv[1:]
    llm: Any = LLM(
        model,
        skip_tokenizer_init=True,
        dtype=dtype,
        max_num_seqs=64,
        max_model_len=1024,
        enable_prefix_caching=True,
        disable_log_stats=True,
    )
    for call in json.loads(Path(calls).read_text()):
        if not sys.stdin.readline():
            return
        wanted = SamplingParams(
            n=call["group"], max_tokens=int(new), ignore_eos=True, temperature=float(temperature), detokenize=False
        )
        began = processor_seconds(os.getpid())
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in call["prompts"]], wanted, use_tqdm=False)
        seconds = processor_seconds(os.getpid()) - began
        tokens = sum(len(one.token_ids) for output in outputs for one in output.outputs)
        print(json.dumps({"tokens": tokens, "cpu_s": seconds}), flush=True)


if __name__ == "__main__":  # vLLM starts its workers anew
    main()
