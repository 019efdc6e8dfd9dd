"""Speed of the embedded engine on a real policy for the bench `real`: beside `generate`, and with many sessions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from tests.bench.model.engine_peers import plain, settings
from trainer.inference.contract import GenerateRequest, GenerateResponse
from trainer.inference.embedded.factory import build_decoder, read_shape
from trainer.inference.embedded.model import read_state
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.errors import ServerError

PROMPTS, ROWS = (48, 1568, 6000), (1, 8, 32)
NEW, TEMPERATURE = 32, 1.0
PREFILLS = 3
PEER_TOKENS = 12_288
"""Prompt tokens of one call of `generate`: more rows are several calls."""
SESSIONS, TURNS, SYSTEM, OWN, ANSWER, OBSERVATION = 64, 4, 384, 16, 12, 24


@dataclass(frozen=True)
class Cell:
    prompt: int
    rows: int

    @property
    def name(self) -> str:
        return f"{self.prompt}x{self.rows}"


class Engine:
    """The engine in this process, fp32."""

    def __init__(self, folder: Path, kv_bytes: int) -> None:
        shape = read_shape(folder)
        limits = Limits(kv_bytes=kv_bytes)
        decoder = build_decoder(shape, read_state(folder), shape.max_position_embeddings)
        self.vocabulary = shape.vocab_size
        self.runner = Runner(limits)
        self.runner.install(decoder, make_cache(decoder, limits), 0)

    def run(self, prompts: list[list[int]], new: int) -> tuple[float, list[GenerateResponse]]:
        """CPU seconds of all rows, prompts included, and the answers in order."""
        answers: dict[int, GenerateResponse] = {}
        for number, prompt in enumerate(prompts):

            def deliver(answer: GenerateResponse | ServerError, number: int = number) -> None:
                assert isinstance(answer, GenerateResponse), answer
                answers[number] = answer

            request = GenerateRequest(prompt_ids=prompt, max_tokens=new, seed=number, temperature=TEMPERATURE)
            self.runner.submit(Job(request, time.monotonic() + 36_000, deliver))
        began = time.process_time()
        while len(answers) < len(prompts):
            self.runner.step()
        return time.process_time() - began, [answers[number] for number in range(len(prompts))]


def random_ids(count: int, vocabulary: int, generator: torch.Generator) -> list[int]:
    return torch.randint(0, vocabulary, (count,), generator=generator).tolist()


def against_generate(folder: Path, engine: Engine, cells: list[Cell], seconds: float) -> dict[str, float]:
    """Generated tokens per CPU second of both, and the largest gap of log-probabilities to the library's forward pass.

    The rows of a cell are samples of one prompt, as in a group of GRPO. `generate` takes as many rows a call as
    `PEER_TOKENS` allows, and no further call of a cell begins after `seconds`: its speed is that of the rows it made.
    """
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found: dict[str, float] = {"logprob_gap_max": 0.0}
    generator = torch.Generator().manual_seed(0)
    warm = random_ids(40, engine.vocabulary, generator)
    engine.run([warm], 4)
    plain(model, [warm], settings(4, TEMPERATURE, 1))
    for cell in cells:
        prompt = random_ids(cell.prompt, engine.vocabulary, generator)
        spent, answers = engine.run([prompt] * cell.rows, NEW)
        found[f"tok_per_cpu_s_{cell.name}"] = cell.rows * NEW / spent
        if cell.prompt <= 2000:
            found["logprob_gap_max"] = max(found["logprob_gap_max"], gap(model, prompt, answers[0]))
        size, made = max(1, min(cell.rows, PEER_TOKENS // cell.prompt)), 0
        began = time.process_time()
        while made < cell.rows and (not made or time.process_time() - began < seconds):
            group = min(size, cell.rows - made)
            plain(model, [prompt], settings(NEW, TEMPERATURE, group))
            made += group
        found[f"generate_{cell.name}"] = made * NEW / (time.process_time() - began)
        found[f"generate_rows_{cell.name}"] = made
        found[f"ratio_{cell.name}"] = found[f"tok_per_cpu_s_{cell.name}"] / found[f"generate_{cell.name}"]
        print(cell.name, {key: round(value, 2) for key, value in found.items() if cell.name in key}, flush=True)
    return found


def prefill(folder: Path, engine: Engine, lengths: list[int]) -> dict[str, float]:
    """Prompt tokens per CPU second of one prompt with nothing generated but its next token: the engine's, and those of the
    library's forward pass with a KV cache. The better of `PREFILLS` each, one after the other."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(2)
    found: dict[str, float] = {}
    for length in lengths:
        ours = theirs = float("inf")
        for _ in range(PREFILLS):
            prompt = random_ids(length, engine.vocabulary, generator)  # each another: nothing of it is cached
            ours = min(ours, engine.run([prompt], 1)[0])
            began = time.process_time()
            with torch.inference_mode():
                model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
            theirs = min(theirs, time.process_time() - began)
        found[f"prefill_tok_per_cpu_s_{length}"], found[f"generate_prefill_{length}"] = length / ours, length / theirs
        found[f"prefill_ratio_{length}"] = theirs / ours
    return found


@torch.inference_mode()
def gap(model: PreTrainedModel, prompt: list[int], answer: GenerateResponse) -> float:
    logits = model(torch.tensor([[*prompt, *answer.token_ids]])).logits[0, len(prompt) - 1 : -1].double()
    theirs = torch.log_softmax(logits / TEMPERATURE, -1).gather(-1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    return float((theirs - torch.tensor(answer.logprobs, dtype=torch.float64)).abs().max())


def sessions(engine: Engine) -> dict[str, float]:
    """Share of the prompt tokens that were cached, over all turns of 64 sessions that run at once."""
    generator = torch.Generator().manual_seed(1)
    system = random_ids(SYSTEM, engine.vocabulary, generator)
    texts = [[*system, *random_ids(OWN, engine.vocabulary, generator)] for _ in range(SESSIONS)]
    read = reused = 0
    spent = 0.0
    for _ in range(TURNS):
        seconds, answers = engine.run(texts, ANSWER)
        spent += seconds
        read += sum(map(len, texts))
        reused += sum(answer.reused_tokens for answer in answers)
        texts = [
            [*text, *answer.token_ids, *random_ids(OBSERVATION, engine.vocabulary, generator)]
            for text, answer in zip(texts, answers, strict=True)
        ]
    preempted = float(engine.runner.preemptions)
    return {"prefix_hit": reused / read, "sessions_cpu_s": spent, "sessions_preemptions": preempted}
