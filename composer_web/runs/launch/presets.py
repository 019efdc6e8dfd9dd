"""Named configurations offered by the form, the API and the CLI."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config import (
    CheckpointConfig,
    MidtrainConfig,
    MonitorsConfig,
    OptimizerConfig,
    RewardConfig,
    RLConfig,
    RunConfig,
    SFTConfig,
)


@dataclass(frozen=True, slots=True)
class Preset:
    key: str
    title: str
    description: str
    config: RunConfig


PRESETS = (
    Preset(
        "rl-toy",
        "RL on the toy policy",
        "40 steps of asynchronous RL on the procedural suite; minutes on two cores.",
        RunConfig(name="RL on the procedural suite", stage=RLConfig()),
    ),
    Preset(
        "rl-on-policy",
        "RL, on-policy",
        "No staleness: each step waits for rollouts of the newest version.",
        RunConfig(name="On-policy RL", stage=RLConfig(max_off_policy_steps=0, max_in_flight_groups=12)),
    ),
    Preset(
        "rl-smoke",
        "RL smoke test",
        "Three small steps: shows that rollouts, grading and training work here.",
        RunConfig(
            name="RL smoke test",
            stage=RLConfig(
                steps=3,
                groups_per_step=2,
                group_size=4,
                max_in_flight_groups=4,
                eval_tasks=4,
                eval_samples=2,
                eval_every=3,
                optimizer=OptimizerConfig(warmup_steps=1),
                checkpoint=CheckpointConfig(every_steps=1),
            ),
        ),
    ),
    Preset(
        "rl-hackable",
        "RL with a reward that can be gamed",
        "A demonstration: the visible tests are the reward and may be rewritten. Reward rises, hidden tests fall, and the "
        "auditor says so. Starts from a policy that knows the trick: run “SFT with tampering” first.",
        RunConfig(
            name="A reward that can be gamed",
            stage=RLConfig(
                reward=RewardConfig(tests_weight=0.0, visible_weight=1.0),
                monitors=MonitorsConfig(quarantine="never", drift=True),
            ),
        ),
    ),
    Preset(
        "sft-toy",
        "SFT on expert episodes",
        "Records imperfect scripted episodes in real sandboxes and trains on them.",
        RunConfig(name="SFT on expert episodes", stage=SFTConfig()),
    ),
    Preset(
        "sft-tampering",
        "SFT with tampering",
        "A demonstration: a fifth of the expert's episodes rewrite the test instead of the code. What RL makes of it depends "
        "on the reward: compare “RL on the toy policy” with “RL with a reward that can be gamed” from its checkpoint.",
        RunConfig(
            name="SFT with tampering",
            stage=SFTConfig(steps=80, episodes=400, tamper_share=0.2, replay_share=0.2),
        ),
    ),
    Preset(
        "midtrain-toy",
        "Mid-training",
        "Continues next-token training on Python source and copying drills; name a corpus to train on your own text.",
        RunConfig(name="Mid-training", stage=MidtrainConfig()),
    ),
)


def preset(key: str) -> Preset | None:
    return next((p for p in PRESETS if p.key == key), None)
