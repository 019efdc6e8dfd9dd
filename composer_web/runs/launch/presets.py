"""Named configurations offered by the form, the API and the CLI.

Presets for real models leave context, turns, rates, precision and concurrency automatic (`trainer/defaults`). The toy's
presets state its numbers (`trainer/toy/preset.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config import (
    BehaviourConfig,
    CheckpointConfig,
    CurriculumConfig,
    HarnessConfig,
    LoraConfig,
    MidtrainConfig,
    MonitorsConfig,
    ObjectiveConfig,
    OptimizerConfig,
    OrchestratorConfig,
    ParallelConfig,
    RewardConfig,
    RLConfig,
    RunConfig,
    SFTConfig,
    SummaryConfig,
    TextualFeedbackConfig,
)
from trainer.toy.preset import toy_midtrain, toy_rl, toy_sft


@dataclass(frozen=True, slots=True)
class Preset:
    key: str
    title: str
    description: str
    config: RunConfig
    toy: bool = False
    """Whether its numbers are those of the toy policy."""


REAL = (
    Preset(
        "real-small",
        "RL on a small model",
        "Full fine-tuning of a dense model of about 0.1 to 8 B parameters: small batches, bfloat16 publishing, and "
        "everything else automatic.",
        RunConfig(
            name="RL on a small model",
            stage=RLConfig(
                groups_per_step=8,
                eval_tasks=16,
                eval_samples=4,
                optimizer=OptimizerConfig(warmup_steps=3),
                checkpoint=CheckpointConfig(published_dtype="bfloat16"),
                curriculum=CurriculumConfig(drop_solved_none=True, drop_solved_all=True),
            ),
        ),
    ),
    Preset(
        "real-moe",
        "RL on a mixture of experts",
        "Router replay, adapters and recomputed activations, for a mixture-of-experts model of about 30 B parameters.",
        RunConfig(
            name="RL on a mixture of experts",
            stage=RLConfig(
                groups_per_step=8,
                eval_tasks=16,
                eval_samples=4,
                objective=ObjectiveConfig(router_replay_threshold=0.5),
                optimizer=OptimizerConfig(warmup_steps=3),
                lora=LoraConfig(rank=32),
                parallel=ParallelConfig(activation_checkpointing=True, lm_head_chunk_size=1 << 24),
                checkpoint=CheckpointConfig(published_dtype="bfloat16"),
                curriculum=CurriculumConfig(drop_solved_none=True, drop_solved_all=True),
            ),
        ),
    ),
    Preset(
        "composer",
        "The published Composer recipe",
        "What the reports describe of reward, session and sampling: length penalty, behaviour rewards, self-summarization, "
        "textual feedback, router replay, bfloat16 publishing, the full harness and a curriculum. KL and draft heads are off: "
        "their weights are not published.",
        RunConfig(
            name="Composer recipe",
            stage=RLConfig(
                groups_per_step=16,
                steps=100,
                max_off_policy_steps=2,
                eval_tasks=32,
                eval_samples=4,
                harness=HarnessConfig(
                    profile="full", summary=SummaryConfig(trigger_share=0.75, max_tokens=1024, max_windows=8)
                ),
                reward=RewardConfig(
                    length_coefficient=3e-5,
                    length_k=0.001,
                    length_q=0.5,
                    behaviour=BehaviourConfig(unfinished_todos=0.05, poor_calls=0.1, style=0.05, communication=0.05),
                ),
                textual_feedback=TextualFeedbackConfig(
                    coefficient=0.1, rules="unknown_tool, invalid_arguments, repeated_call, terminal_for_tools"
                ),
                optimizer=OptimizerConfig(warmup_steps=5),
                orchestrator=OrchestratorConfig(over_sampling=0.125),
                parallel=ParallelConfig(activation_checkpointing=True, lm_head_chunk_size=1 << 24),
                checkpoint=CheckpointConfig(published_dtype="bfloat16"),
                curriculum=CurriculumConfig(
                    drop_solved_none=True, drop_solved_all=True, easy_to_hard=1.0, difficulty="effort"
                ),
            ),
        ),
    ),
    Preset(
        "sft-expert",
        "SFT on expert episodes",
        "What a model needs before RL when it passes no task: a scripted expert works in real sandboxes, half of its attempts "
        "are the intended fix, and the model learns the tools and the course of an episode from them.",
        RunConfig(
            name="SFT on expert episodes",
            stage=SFTConfig(episodes=200, expert_accuracy=0.5, steps=50, optimizer=OptimizerConfig(warmup_steps=3)),
        ),
    ),
    Preset(
        "sft",
        "SFT on a dataset",
        "Supervised training on conversations or recorded rollouts: name the dataset.",
        RunConfig(name="SFT on a dataset", stage=SFTConfig(observation_weight=0.0)),
    ),
    Preset(
        "midtrain",
        "Mid-training on a corpus",
        "Continues next-token training on your own text: name the corpus.",
        RunConfig(name="Mid-training on a corpus", stage=MidtrainConfig(drill_share=0.0, source_share=0.0)),
    ),
)

TOY = (
    Preset(
        "rl-toy",
        "RL on the toy policy",
        "40 steps of asynchronous RL on the procedural suite; minutes on two cores.",
        RunConfig(name="RL on the procedural suite", stage=toy_rl()),
        toy=True,
    ),
    Preset(
        "rl-on-policy",
        "RL on the toy, on-policy",
        "No staleness: each step waits for rollouts of the newest version.",
        RunConfig(name="On-policy RL", stage=toy_rl(max_off_policy_steps=0, max_in_flight_groups=12)),
        toy=True,
    ),
    Preset(
        "rl-smoke",
        "RL smoke test on the toy",
        "Three small steps: shows that rollouts, grading and training work here.",
        RunConfig(
            name="RL smoke test",
            stage=toy_rl(
                steps=3,
                groups_per_step=2,
                group_size=4,
                max_in_flight_groups=4,
                eval_tasks=4,
                eval_samples=2,
                eval_every=3,
                optimizer=OptimizerConfig(learning_rate=3e-4, warmup_steps=1),
                checkpoint=CheckpointConfig(every_steps=1),
            ),
        ),
        toy=True,
    ),
    Preset(
        "rl-hackable",
        "RL with a reward that can be gamed",
        "A demonstration: the visible tests are the reward and may be rewritten. Reward rises, hidden tests fall, and the "
        "auditor says so. Starts from a policy that knows the trick: run “SFT with tampering” first.",
        RunConfig(
            name="A reward that can be gamed",
            stage=toy_rl(
                reward=RewardConfig(tests_weight=0.0, visible_weight=1.0),
                monitors=MonitorsConfig(quarantine="never", drift=True),
            ),
        ),
        toy=True,
    ),
    Preset(
        "sft-toy",
        "SFT of the toy",
        "Records imperfect scripted episodes in real sandboxes and trains the toy on them.",
        RunConfig(name="SFT of the toy", stage=toy_sft()),
        toy=True,
    ),
    Preset(
        "sft-tampering",
        "SFT with tampering",
        "A demonstration: a fifth of the expert's episodes rewrite the test instead of the code. What RL makes of it depends "
        "on the reward: compare “RL on the toy policy” with “RL with a reward that can be gamed” from its checkpoint.",
        RunConfig(
            name="SFT with tampering",
            stage=toy_sft(steps=80, episodes=400, tamper_share=0.2, replay_share=0.2),
        ),
        toy=True,
    ),
    Preset(
        "midtrain-toy",
        "Mid-training of the toy",
        "Continues next-token training on Python source and copying drills.",
        RunConfig(name="Mid-training", stage=toy_midtrain()),
        toy=True,
    ),
)
PRESETS = (*REAL, *TOY)


def preset(key: str) -> Preset | None:
    return next((p for p in PRESETS if p.key == key), None)


def first_preset(*, toy: bool) -> Preset:
    """Preset of an empty form: the toy's where only the toy is registered."""
    return TOY[0] if toy else REAL[0]
