"""A small world for loops: a random policy, the embedded engine in this process, and episodes that really wait.

An episode is two turns of four tokens; after each it waits as for a tool call. In all it waits a lognormal number of
seconds, fixed by prompt and sample, so that every loop meets the same slow ones. Reward is the share of its tokens that
are of the prompt's class (id modulo 4), which is learned within tens of steps.
"""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from sandbox.grading.verdict.report import Report, Verdict
from sandbox.harness.types import StopReason
from tests.bench.runs.memory import DirectClient
from trainer import policy as policies
from trainer.config import RLConfig
from trainer.inference.contract import DeploymentSpec, GenerateRequest, GenerateResponse
from trainer.inference.embedded.runner import Limits
from trainer.inference.embedded.serving.server import EmbeddedEngine
from trainer.orchestrator.concurrency import EngineLoad
from trainer.rollouts.group import GroupResult, run_attempts
from trainer.rollouts.record import Record
from trainer.toy.model import tiny_config
from trainer.types import RewardPart, Trajectory, Turn

BASE = Path("policies/base")
DEPLOYMENT = "policy"
CLASSES, TURN_TOKENS = 4, 4
READ_TOKENS = (120, 10)
"""Before each turn: a prompt, which the engine reads once a group, and an observation."""
UNSEEN = 100_000
"""First prompt of a measurement."""
SIGMA = 1.05
"""Sigma of the lognormal: p99 / p50 = exp(2.326 · SIGMA) = 11.5."""


def make_policy(folder: Path, *, seed: int, width: int = 128, layers: int = 2) -> Path:
    """Random weights of the given size under the base policy's tokenizer."""
    policy = policies.load(BASE)
    values = tiny_config(policy.tokenizer).to_dict() | {
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": layers,
        "layer_types": ["full_attention"] * layers,
    }
    torch.manual_seed(seed)
    policies.save(replace(policy, model=Qwen3ForCausalLM(Qwen3Config.from_dict(values))), folder)
    return folder


def duration(prompt: int, sample: int, median: float) -> float:
    """Seconds that an attempt waits in all, the same in every loop."""
    return median * math.exp(SIGMA * random.Random(prompt * 1009 + sample).gauss(0.0, 1.0))


class World:
    """Engine and episodes of one loop; everything runs on the event loop that first asks for the engine."""

    def __init__(
        self, *, policy_dir: Path, store: str, memory: Path, config: RLConfig, median: float, seed: int
    ) -> None:
        self.config, self.median, self.seed = config, median, seed
        self.policy_dir, self.store = policy_dir, store
        self.engine = EmbeddedEngine(memory=memory, limits=Limits(max_context=256), poll_seconds=0.05)
        self.generate: Callable[[GenerateRequest], Awaitable[GenerateResponse]] = self.engine.generate
        self.started = False
        self.waited: list[float] = []

    async def update(self, version: int) -> None:
        """Returns once the engine samples from `version`; requests in flight go on with the new weights."""
        if self.started:
            await self.engine.update(DEPLOYMENT, version)
            return
        self.started = True
        self.memory_ready()
        await self.engine.start()
        spec = DeploymentSpec(name=DEPLOYMENT, policy_dir=str(self.policy_dir), store=self.store, follow=True)
        await self.engine.deploy(spec)

    def memory_ready(self) -> None:
        Path(self.store).mkdir(parents=True, exist_ok=True)

    async def close(self) -> None:
        if self.started:
            await self.engine.stop()

    def load(self) -> EngineLoad | None:
        served = self.engine.statuses()
        return EngineLoad(served[0].running, served[0].waiting, served[0].slots) if served else None

    async def play(self, prompt: int, *, version: int) -> GroupResult:
        """The group of a prompt: real attempts, concurrently."""

        async def episode(sample: int, session: str, seed: int) -> Trajectory:
            return await self.episode(prompt, sample, session, seed)

        return await run_attempts(
            episode,
            group_id=f"{self.seed}-{prompt}",
            prompt_index=prompt,
            config=self.config,
            seed=self.seed,
            dispatched_version=version,
        )

    async def episode(self, prompt: int, sample: int, session: str, seed: int) -> Trajectory:
        wanted, wait = prompt % CLASSES, duration(prompt, sample, self.median)
        record = Record(messages=())
        for turn, count in enumerate(READ_TOKENS):
            record.read([10 + wanted] * count)
            start = len(record.tokens)
            record.wrote(
                await self.generate(
                    GenerateRequest(
                        deployment=DEPLOYMENT,
                        prompt_ids=record.tokens,
                        max_tokens=TURN_TOKENS,
                        temperature=self.config.sampling.temperature,
                        seed=(seed * 31 + turn) % (1 << 31),
                        session=session,
                    )
                )
            )
            record.turns.append(Turn(index=turn, text="", token_start=start, token_end=len(record.tokens)))
            await asyncio.sleep(wait / len(READ_TOKENS))
        self.waited.append(wait)
        wrote = [t for t, m in zip(record.tokens, record.loss_mask, strict=True) if m]
        reward = sum(token % CLASSES == wanted for token in wrote) / len(wrote)
        record.close_segment()
        return Trajectory(
            task_id=f"class-{wanted}",
            bundle_hash="",
            sample=sample,
            messages=(),
            tool_schema_hash="",
            turns=tuple(record.turns),
            segments=tuple(record.segments),
            stop_reason=StopReason.FINISHED,
            report=Report(verdict=Verdict.PASSED if reward > 0.5 else Verdict.FAILED),
            reward=reward,
            reward_parts=(RewardPart(name="class", value=reward),),
            seconds={"total": wait},
        )


def measured(policy_dir: Path, weights: Mapping[str, torch.Tensor], config: RLConfig) -> float:
    """Mean reward of a policy on prompts that no loop plays, sampled from its own weights alone and without waiting."""
    with tempfile.TemporaryDirectory(prefix="measured-") as folder:
        world = World(
            policy_dir=policy_dir, store=folder, memory=Path(folder) / "engine", config=config, median=0.0, seed=1
        )
        client = DirectClient(policy_dir, most=256)
        client.load(weights, 0)
        world.generate = client.generate

        async def play() -> list[GroupResult]:
            return await asyncio.gather(*(world.play(UNSEEN + index, version=0) for index in range(4 * CLASSES)))

        groups = asyncio.run(play())
    return fmean(one.reward for group in groups for one in group.trajectories if one.reward is not None)
