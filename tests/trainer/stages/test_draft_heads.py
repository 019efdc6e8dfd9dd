"""From the stage to the engine: a stage trains a head after its last step, its checkpoint has it, engines draft with it and
report how often it was right, and no token is another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from tests.trainer.router_replay.moe import make
from tests.trainer.router_replay.test_training import policy_with_experts
from tests.trainer.stages.memory import BASE_POLICY, ListSource, MemorySink, make_group, small_config
from trainer import policy as policies
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, MTPConfig, OptimizerConfig, RLConfig
from trainer.errors import StageError
from trainer.inference.client import HttpInferenceClient, InferenceAdmin
from trainer.inference.contract import DeploymentSpec, DeploymentStatus, GenerateRequest
from trainer.inference.embedded.mtp_head import MultiToken
from trainer.inference.embedded.serving.process import EmbeddedServer
from trainer.learning.metrics import describe
from trainer.midtrain.stage import run_midtrain
from trainer.rl.stage import run_rl
from trainer.stages.draft_heads import check_heads
from trainer.toy.preset import toy_midtrain
from trainer.weights import WeightStore

pytestmark = pytest.mark.integration

HEADS = MTPConfig(
    num_speculative_tokens=2, schedule="end", train_tokens=6000, seq_len=64, hidden_size=64, steps=80, batch_size=4,
    learning_rate=1e-2,
)  # fmt: skip
SHORT = HEADS.model_copy(update={"steps": 4})


def mid_trained(
    root: Path, heads: MTPConfig, sink: MemorySink, *, steps: int = 2, start: Path = BASE_POLICY, rate: float = 1e-5
) -> Path:
    config = toy_midtrain(
        steps=steps, batch_tokens=600, source_share=0.0, mtp=heads, checkpoint=CheckpointConfig(every_steps=1, keep=1),
        optimizer=OptimizerConfig(learning_rate=rate, warmup_steps=0),
    )  # fmt: skip
    result = run_midtrain(policy_dir=start, config=config, seed=0, sink=sink, checkpoints=CheckpointStore(root, keep=1))
    assert result.checkpoint is not None
    return result.checkpoint / "policy"


def answers(url: str, deployment: str, prompts: list[list[int]], *, temperature: float = 0.0) -> list[list[int]]:
    async def ask() -> list[list[int]]:
        async with HttpInferenceClient(url) as client:
            requests = [
                GenerateRequest(
                    deployment=deployment, prompt_ids=prompt, max_tokens=40, temperature=temperature, seed=n
                )
                for n, prompt in enumerate(prompts)
            ]
            return [answer.token_ids for answer in await asyncio.gather(*map(client.generate, requests))]

    return asyncio.run(ask())


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["dense", "experts"])
def test_a_stage_trains_a_head_and_engines_draft_with_it(tmp_path: Path, kind: str) -> None:
    sink = MemorySink()
    start, rate = (BASE_POLICY, 1e-5) if kind == "dense" else (policy_with_experts(tmp_path / "start"), 1e-2)
    policy = mid_trained(tmp_path / "checkpoints", HEADS, sink, start=start, rate=rate)
    assert sink.values[1].keys() & {"heads/loss", "heads/accepted"} == set()
    accepted = sink.values[2]["heads/accepted"]
    assert accepted > 0.02 and sink.values[2]["heads/loss"] > 0
    for name in sink.values[2]:
        describe(name)
    known = drafted_for(policy, tmp_path)
    assert 0 < known.accepted_tokens < known.draft_tokens


def drafted_for(policy: Path, tmp_path: Path) -> DeploymentStatus:
    """What an engine that drafts with the policy's head says of it; its answers are those of one that does not."""
    text = policies.load_tokenizer(policy)("def total(values):\n    return sum(values)\n")["input_ids"]
    prompts = [text[:n] for n in range(2, len(text))]
    with EmbeddedServer(tmp_path / "engine") as server, InferenceAdmin(server.url) as admin:
        for name, ahead in (("plain", None), ("drafting", 2)):
            admin.deploy(DeploymentSpec(name=name, policy_dir=str(policy), num_speculative_tokens=ahead))
        assert answers(server.url, "drafting", prompts) == answers(server.url, "plain", prompts)
        known = {status.name: status for status in admin.deployments()}
    assert known["plain"].draft_tokens == 0 < known["drafting"].draft_tokens
    assert known["drafting"].by_engine[0].draft_tokens == known["drafting"].draft_tokens
    return known["drafting"]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy with a head that has hardly learned."""
    sink = MemorySink()
    policy = mid_trained(tmp_path_factory.mktemp("short"), SHORT, sink)
    assert sink.values[1].keys() & {"heads/loss", "heads/accepted"} == set()
    assert "heads/accepted" in sink.values[2] and sink.values[2]["heads/loss"] > 0
    for name in sink.values[2]:
        describe(name)
    return policy


def test_an_engine_drafts_with_the_head_of_a_stage(short: Path, tmp_path: Path) -> None:
    drafted_for(short, tmp_path)


@pytest.mark.timeout(400)
def test_a_resumed_stage_trains_the_same_head(short: Path, tmp_path: Path) -> None:
    stopped = MemorySink(stop_after=1)
    assert mid_trained(tmp_path / "cut", SHORT, stopped).parent.name == "step-000001"
    assert "heads/loss" not in stopped.values[1]
    cut = mid_trained(tmp_path / "cut", SHORT, MemorySink())
    assert (cut / "mtp" / "mtp.safetensors").read_bytes() == (short / "mtp" / "mtp.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_next_stage_keeps_the_head_or_trains_another_on_its_rollouts(short: Path, tmp_path: Path) -> None:
    whole = short
    groups = [make_group(policies.load_model(whole), index) for index in range(8)]

    def learn(config: RLConfig, root: Path, start: Path) -> tuple[Path, MemorySink]:
        sink = MemorySink()
        result = run_rl(
            policy_dir=start, config=config, seed=0, source=ListSource(groups, 2), sink=sink,
            store=WeightStore(root / "weights", dtype="float32"), checkpoints=CheckpointStore(root / "steps", keep=1),
        )  # fmt: skip
        assert result.checkpoint is not None
        return result.checkpoint / "policy" / "mtp" / "mtp.safetensors", sink

    kept, sink = learn(small_config(), tmp_path / "kept", whole)
    assert kept.read_bytes() == (whole / "mtp" / "mtp.safetensors").read_bytes()
    assert "heads/loss" not in sink.values[4]
    again = SHORT.model_copy(update={"seq_len": 16, "train_tokens": 100, "hidden_size": 16})
    for start, width in ((whole, 128), (policy_with_experts(tmp_path / "experts"), 32)):
        anew, sink = learn(small_config(mtp=again), tmp_path / f"anew-{width}", start)
        head = MultiToken.load(anew.parent.parent, width)
        assert head is not None and head.mix.weight.shape[0] == 16 and "heads/accepted" in sink.values[4]
    too_long = SHORT.model_copy(update={"seq_len": 400})
    with pytest.raises(StageError, match=r"mtp\.seq_len: .* tokens do not fill a window of 400"):
        learn(small_config(mtp=too_long), tmp_path / "long", whole)


def test_policies_that_are_never_drafted_for_are_refused_at_once() -> None:
    other = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=1, n_head=2))
    refusal = (
        r"mtp\.num_speculative_tokens=2: the embedded engine, which alone drafts tokens, does not compute GPT2LMHeadModel: "
        r"model_type 'gpt2' is not one of .*'qwen3_moe'.*; set it to 0"
    )
    with pytest.raises(StageError, match=refusal):
        check_heads(other, HEADS)
    check_heads(other, MTPConfig())
    for family in ("qwen3-moe", "mixtral", "deepseek-v3"):
        check_heads(make(family, 0), HEADS)
    with pytest.raises(ValueError, match="train_tokens=100 must be at least two pieces of seq_len=192"):
        MTPConfig(train_tokens=100)
