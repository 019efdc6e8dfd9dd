"""Named starting points of the run form."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config import MidtrainConfig, RLConfig, RunConfig, SFTConfig


@dataclass(frozen=True)
class Preset:
    slug: str
    label: str
    help: str
    config: RunConfig


PRESETS: tuple[Preset, ...] = (
    Preset("rl-demo", "RL, the demo", "40 steps of 12 groups × 8 rollouts on the procedural suite",
           RunConfig(name="RL demo", stage=RLConfig())),
    Preset("rl-short", "RL, a first look", "6 small steps: minutes, to see the machinery move",
           RunConfig(name="RL first look", stage=RLConfig(steps=6, groups_per_step=4, max_in_flight_groups=8, eval_every=3,
                                                          eval_tasks=16, eval_samples=4))),
    Preset("rl-on-policy", "RL, on-policy", "Staleness 0: rollouts always come from the newest weights",
           RunConfig(name="RL on-policy", stage=RLConfig(max_staleness=0, max_in_flight_groups=12))),
    Preset("sft", "SFT", "60 steps on 600 recorded expert episodes", RunConfig(name="SFT", stage=SFTConfig())),
    Preset("midtrain", "Mid-training", "60 steps of source code and copying drills",
           RunConfig(name="Mid-training", stage=MidtrainConfig())),
)  # fmt: skip


def find(slug: str) -> Preset | None:
    return next((preset for preset in PRESETS if preset.slug == slug), None)
