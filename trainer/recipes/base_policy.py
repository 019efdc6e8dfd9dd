"""The shipped base policy from scratch: `make base-policy`.

    random weights that can copy → mid-training → expert episodes in real sandboxes → SFT → policies/base

The stages are those of the product. The tokenizer is kept from the folder that is being replaced, since every
checkpoint is bound to it (`--new-tokenizer` trains it again). Beside the weights stands `recipe.json`: both stage
configurations, seed, expert, losses and seconds. On the same machine and thread count the result is bit-identical.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch

from sandbox.backends.choice import default_backend
from sandbox.tasks.environments import EnvironmentStore
from trainer import policy as policies
from trainer.checkpoint.layout import POLICY_DIR
from trainer.checkpoint.store import CheckpointStore
from trainer.config import CheckpointConfig, MidtrainConfig, OptimizerConfig, SFTConfig
from trainer.midtrain.stage import run_midtrain
from trainer.midtrain.synthetic import BASE_DRILLS, BASE_SOURCE
from trainer.sft.expert_episodes import ExpertEpisode
from trainer.sft.recording import Recording, expert_episodes
from trainer.sft.stage import run_sft
from trainer.toy.model import build_tiny_model
from trainer.toy.preset import toy_midtrain, toy_sft
from trainer.toy.tokenizer import build_tokenizer

BASE = Path(__file__).resolve().parents[2] / "policies" / "base"
RECIPE = "recipe.json"
CHECKPOINTS = CheckpointConfig(every_steps=250, keep=1)

MIDTRAIN = toy_midtrain(
    init="scratch",
    steps=3200,
    batch_tokens=2048,
    drill_share=BASE_DRILLS,
    source_share=BASE_SOURCE,
    optimizer=OptimizerConfig(name="muon", learning_rate=5e-3, warmup_steps=20, decay_start=0.4, min_lr_ratio=0.1),
    checkpoint=CHECKPOINTS,
)
SFT = toy_sft(
    steps=600,
    batch_tokens=2048,
    episodes=3000,
    observation_weight=0.05,
    replay_share=0.3,
    optimizer=OptimizerConfig(name="muon", learning_rate=1.5e-3, warmup_steps=20, decay_start=0.3, min_lr_ratio=0.1),
    checkpoint=CHECKPOINTS,
)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Recorder:
    """A stage sink that prints and keeps a point of the curves every few steps: means since the last point."""

    def __init__(self, stage: str, *, every: int = 50) -> None:
        self.stage = stage
        self.every = every
        self.curve: list[dict[str, float]] = []
        self._recent: list[Mapping[str, float]] = []
        self.tokens = 0
        self.started = time.perf_counter()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.tokens += int(values["tokens/trained"])
        self._recent.append(values)
        if step % self.every == 0:
            means = {name: fmean(v[name] for v in self._recent) for name in ("loss/train", "loss/accuracy")}
            means["loss/heldout"] = values["loss/heldout"]
            self._recent.clear()
            self.curve.append({"step": step, **{name.removeprefix("loss/"): round(v, 4) for name, v in means.items()}})
            say(json.dumps({"stage": self.stage, **self.curve[-1], "tokens": self.tokens}))

    def progress(self, done: int, total: int) -> None:
        """The printed lines are progress enough."""

    def version_published(self, version: int, digest: str, values: Mapping[str, float]) -> None:
        """Supervised stages publish no versions."""

    def checkpoint_saved(self, step: int, path: Path, *, final: bool) -> None:
        """The caller takes the last one from the result."""

    def event(
        self, level: Literal["info", "warning", "error"], message: str, data: Mapping[str, Any] | None = None
    ) -> None:
        say(f"{self.stage}: {level}: {message}")

    def should_stop(self) -> bool:
        return False

    def facts(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "seconds": round(time.perf_counter() - self.started, 1), "curve": self.curve}


def midtrain(*, start: Path, work: Path, config: MidtrainConfig, seed: int) -> Path:
    """Mid-train from scratch with the tokenizer in `start`; returns a policy folder with its recipe so far."""
    middle = Recorder("midtrain")
    first = run_midtrain(
        policy_dir=start, config=config, seed=seed, sink=middle,
        checkpoints=CheckpointStore(work / "midtrain", keep=CHECKPOINTS.keep),
    )  # fmt: skip
    assert first.checkpoint is not None
    recipe = {
        "what": "toy policy of the procedural task family; its skill does not transfer to real repositories",
        "command": "make base-policy",
        "seed": seed,
        "threads": torch.get_num_threads(),
        "midtrain": {"config": config.model_dump(mode="json"), **middle.facts()},
    }
    return _write(first.checkpoint / POLICY_DIR, work / "midtrained", recipe)


def sft(
    *,
    midtrained: Path,
    out: Path,
    work: Path,
    config: SFTConfig,
    seed: int,
    episodes: Sequence[ExpertEpisode],
    expert: Mapping[str, Any],
) -> Path:
    """Fine-tune what `midtrain` left and write the policy folder `out` with the whole recipe."""
    last = Recorder("sft")
    second = run_sft(
        policy_dir=midtrained, config=config, seed=seed, episodes=episodes, sink=last,
        checkpoints=CheckpointStore(work / "sft", keep=CHECKPOINTS.keep),
    )  # fmt: skip
    assert second.checkpoint is not None
    recipe = json.loads((midtrained / RECIPE).read_text(encoding="utf-8"))
    recipe |= {"expert": dict(expert), "sft": {"config": config.model_dump(mode="json"), **last.facts()}}
    return _write(second.checkpoint / POLICY_DIR, out, recipe)


def _write(trained: Path, out: Path, recipe: Mapping[str, Any]) -> Path:
    return policies.save(policies.load(trained), out, extra={RECIPE: json.dumps(recipe, indent=1) + "\n"})


async def _episodes(recording: Recording, data: Path) -> list[ExpertEpisode]:
    backend = default_backend()
    try:
        store = EnvironmentStore(data / "environments")
        return await expert_episodes(
            recording, cache=data / "artifacts" / "expert", backend=backend, environments=store
        )
    finally:
        await backend.close()


def _untrained(work: Path, seed: int, *, new_tokenizer: bool) -> Path:
    """A folder with the tokenizer and initial weights."""
    tokenizer = build_tokenizer() if new_tokenizer else policies.load_tokenizer(BASE)
    model = build_tiny_model(tokenizer, seed)
    return policies.save(policies.Policy(model, tokenizer, policies.make_renderer(tokenizer), work), work / "start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BASE, help="policy folder to write")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OPENCOMPOSER_DATA", ".data")))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--midtrain-steps", type=int, default=MIDTRAIN.steps)
    parser.add_argument("--sft-steps", type=int, default=SFT.steps)
    parser.add_argument("--episodes", type=int, default=SFT.episodes)
    parser.add_argument("--midtrained", type=Path, help="start SFT from this mid-trained policy folder")
    parser.add_argument(
        "--new-tokenizer", action="store_true", help="train the tokenizer again: old checkpoints become unusable"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

    with tempfile.TemporaryDirectory(prefix="base-policy-") as scratch:
        work = Path(scratch)
        middle = arguments.midtrained or midtrain(
            start=_untrained(work, arguments.seed, new_tokenizer=arguments.new_tokenizer),
            work=work,
            config=MIDTRAIN.model_copy(update={"steps": arguments.midtrain_steps}),
            seed=arguments.seed,
        )
        recording = Recording(count=arguments.episodes, seed=arguments.seed)
        began = time.perf_counter()
        episodes = asyncio.run(_episodes(recording, arguments.data))
        expert = {**recording.facts(), "seconds": round(time.perf_counter() - began, 1)}
        say(json.dumps({"stage": "expert", **expert}))
        sft(
            midtrained=middle,
            out=arguments.out,
            work=work,
            config=SFT.model_copy(update={"steps": arguments.sft_steps, "episodes": arguments.episodes}),
            seed=arguments.seed,
            episodes=episodes,
            expert=expert,
        )
    say(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
