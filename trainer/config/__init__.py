"""RunConfig: the ONE description of a run. Form, API, CLI, storage and trainer all load this model.

Imports neither torch nor Django (the import linter checks it). Every field has a title-worthy name, a help
text, bounds, and a default that is our documented choice. `advanced` fields sit behind a fold in the form.
"""

from trainer.config.episodes import HarnessConfig, SamplingConfig, SummaryConfig
from trainer.config.guards import Guards
from trainer.config.labels import LabelRule, LabelsConfig
from trainer.config.learning import (
    CorrectionConfig,
    LoraConfig,
    MTPConfig,
    ObjectiveConfig,
    OptimizerConfig,
    TextualFeedbackConfig,
)
from trainer.config.machines import CheckpointConfig, ParallelConfig
from trainer.config.parts import Part, setting
from trainer.config.prompts import MIX, CurriculumConfig, OrchestratorConfig, SessionsConfig
from trainer.config.rewards import BehaviourConfig, LengthWeights, MonitorsConfig, RewardConfig
from trainer.config.rl import RLConfig
from trainer.config.run import RunConfig, Stage
from trainer.config.supervised import MidtrainConfig, SFTConfig

__all__ = [
    "MIX",
    "BehaviourConfig",
    "CheckpointConfig",
    "CorrectionConfig",
    "CurriculumConfig",
    "Guards",
    "HarnessConfig",
    "LabelRule",
    "LabelsConfig",
    "LengthWeights",
    "LoraConfig",
    "MTPConfig",
    "MidtrainConfig",
    "MonitorsConfig",
    "ObjectiveConfig",
    "OptimizerConfig",
    "OrchestratorConfig",
    "ParallelConfig",
    "Part",
    "RLConfig",
    "RewardConfig",
    "RunConfig",
    "SFTConfig",
    "SamplingConfig",
    "SessionsConfig",
    "Stage",
    "SummaryConfig",
    "TextualFeedbackConfig",
    "setting",
]
