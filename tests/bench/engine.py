"""Embedded engine: tokens a second against Hugging Face generate in the same run, episodes over HTTP, weight swaps.

`make bench NAME=engine [ARGS="--rounds 3"]`. One torch thread throughout. Model: the toy policy's size (Qwen3, 4 layers
of 128, vocabulary 1024), random weights, fp32. Peer: `generate` of the same model, same prompts, same number of new
tokens; rounds of both alternate, medians are reported, per wall second and per CPU second (which holds on a busy
machine, too). `http_*` are whole episodes through the server, in a process of its own, while a weight store
publishes a new version every 0.3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from tests.bench import report
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec, GenerateRequest, GenerateResponse, SyncTimings
from trainer.inference.embedded.jobs import Job
from trainer.inference.embedded.model import Decoder, Weights
from trainer.inference.embedded.process import EmbeddedServer
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.errors import ServerError
from trainer.weights import WeightStore

VOCAB, PROMPT, NEW, TEMPERATURE = 1024, 64, 128, 0.8
EPISODES, TURNS, TURN_TOKENS, OBSERVATION = 96, 6, 12, 40


def toy_model() -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).float().eval()


def prompts(rows: int) -> list[list[int]]:
    return torch.randint(0, VOCAB, (rows, PROMPT), generator=torch.Generator().manual_seed(rows)).tolist()


class Speed(NamedTuple):
    """Tokens a second."""

    wall: float
    cpu: float


class Clock:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def speed(self, tokens: int) -> Speed:
        return Speed(tokens / (time.perf_counter() - self._wall), tokens / (time.process_time() - self._cpu))


class Engine:
    """The engine in this process, without HTTP."""

    def __init__(self, model: PreTrainedModel) -> None:
        shape = DecoderShape.from_config(model.config.to_dict())
        self.decoder = Decoder(shape, Weights.build(shape, model.state_dict()), shape.max_position_embeddings)

    def run(self, rows: int) -> tuple[Speed, list[Job]]:
        """The whole call, prefill included."""
        runner = Runner(Limits())
        runner.install(self.decoder, make_cache(self.decoder, runner.limits), 0)
        answers: list[GenerateResponse | ServerError] = []
        jobs = []
        for number, prompt in enumerate(prompts(rows)):
            request = GenerateRequest(prompt_ids=prompt, max_tokens=NEW, temperature=TEMPERATURE, seed=number)
            jobs.append(Job(request, time.monotonic() + 600, answers.append))
            runner.submit(jobs[-1])
        clock = Clock()
        while len(answers) < rows:
            runner.step()
        return clock.speed(rows * NEW), jobs


@torch.inference_mode()
def peer(model: PreTrainedModel, rows: int) -> Speed:
    ids = torch.tensor(prompts(rows))
    clock = Clock()
    out = model.generate(  # type: ignore[operator]
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW,
        min_new_tokens=NEW,
        do_sample=True,
        temperature=TEMPERATURE,
        top_k=0,
        pad_token_id=0,
        eos_token_id=None,
    )
    assert out.shape[1] == PROMPT + NEW
    return clock.speed(rows * NEW)


@torch.no_grad()
def largest_gap(model: PreTrainedModel, jobs: list[Job]) -> float:
    """Largest difference between the engine's log-probabilities and the model's own."""
    gap = 0.0
    for job in jobs[:8]:
        logits = model(torch.tensor([[*job.prompt, *job.token_ids]])).logits[0, PROMPT - 1 : -1] / TEMPERATURE
        expected = torch.log_softmax(logits, -1).gather(-1, torch.tensor(job.token_ids)[:, None])[:, 0]
        gap = max(gap, float((expected - torch.tensor(job.logprobs)).abs().max()))
    return gap


async def episodes(url: str, store: WeightStore, model: PreTrainedModel, admin: InferenceAdmin) -> dict[str, float]:
    """Whole episodes: short turns, observations in between, weights swapped meanwhile."""
    syncs: list[SyncTimings] = []
    done = asyncio.Event()

    async def publish() -> None:
        version = 0
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        while not done.is_set():
            version += 1
            for tensor in state.values():
                tensor += 1e-5 * torch.randn_like(tensor)
            await asyncio.to_thread(store.publish, version, state)
            await asyncio.sleep(0.3)
            last = (await asyncio.to_thread(admin.deployments))[0].last_sync
            if last is not None and last.kind == "delta" and (not syncs or last.version != syncs[-1].version):
                syncs.append(last)

    async with HttpInferenceClient(url) as client:

        async def episode(number: int) -> int:
            generator = torch.Generator().manual_seed(number)
            ids = torch.randint(0, VOCAB, (80,), generator=generator).tolist()
            for turn in range(TURNS):
                answer = await client.generate(
                    GenerateRequest(
                        prompt_ids=ids, max_tokens=TURN_TOKENS, seed=turn, session=f"e{number}", temperature=TEMPERATURE
                    )
                )
                observation = torch.randint(0, VOCAB, (OBSERVATION,), generator=generator).tolist()
                ids = [*ids, *answer.token_ids, *observation]
            return TURNS * TURN_TOKENS

        publishing = asyncio.create_task(publish())
        began = time.perf_counter()
        tokens = 0
        for wave in range(2):
            tokens += sum(await asyncio.gather(*(episode(wave * EPISODES + n) for n in range(EPISODES))))
        seconds = time.perf_counter() - began
        done.set()
        await publishing
    middle = {
        f"swap_{phase}_ms": round(1000 * statistics.median(getattr(sync, phase) for sync in syncs), 3)
        for phase in ("fetch", "decode", "wait", "pause")
    }
    return {
        "http_tok_per_s": round(tokens / seconds),
        "http_turns_per_s": round(2 * EPISODES * TURNS / seconds, 1),
        "swaps": len(syncs),
        "swap_bytes": statistics.median(sync.bytes for sync in syncs),
        **middle,
    }


GOALS: dict[str, report.Goal] = {"tok_per_s_64": (">=", 3000.0), "logprob_gap_max": ("<=", 1e-4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = toy_model()
    engine = Engine(model)
    result: dict[str, float] = {}
    for rows in (1, 16, 64):
        ours: list[Speed] = []
        theirs: list[Speed] = []
        jobs: list[Job] = []
        for _ in range(arguments.rounds):
            speed, jobs = engine.run(rows)
            ours.append(speed)
            theirs.append(peer(model, rows))
        for kind in ("wall", "cpu"):
            mine, others = (statistics.median(getattr(speed, kind) for speed in speeds) for speeds in (ours, theirs))
            unit = "s" if kind == "wall" else "cpu_s"
            result[f"tok_per_{unit}_{rows}"] = round(mine)
            result[f"hf_tok_per_{unit}_{rows}"] = round(others)
            result[f"ratio_{unit}_{rows}"] = round(mine / others, 2)
        result["logprob_gap_max"] = max(result.get("logprob_gap_max", 0.0), largest_gap(model, jobs))
        print(
            f"{rows} rows: {result[f'tok_per_s_{rows}']} tok/s, peer {result[f'hf_tok_per_s_{rows}']} tok/s", flush=True
        )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        model.save_pretrained(root / "policy")
        store = WeightStore(root / "weights")
        store.publish(0, model.state_dict())
        with EmbeddedServer(root / "data") as server, InferenceAdmin(server.url) as admin:
            admin.deploy(
                DeploymentSpec(name="policy", policy_dir=str(root / "policy"), store=str(root / "weights"), follow=True)
            )
            result |= asyncio.run(episodes(server.url, store, model, admin))
    peers = {name: value for name, value in result.items() if name.startswith("hf_")}
    metrics = {name: value for name, value in result.items() if name not in peers}
    report.emit("engine", metrics, goals=GOALS, peers=peers)


if __name__ == "__main__":
    main()
