"""Where a run keeps its files and how its deployment is called."""

from __future__ import annotations

from pathlib import Path

from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.policies.selectors import resolve
from composer_web.policies.services import real_path
from composer_web.runs.models import Run
from trainer.config import RLConfig
from trainer.config.episodes import SamplingConfig
from trainer.inference.contract import DeploymentSpec


def weights_folder(run: Run) -> str:
    """Weight store that the run publishes into: a folder, or an address in the bucket of the settings."""
    return f"{env().weight_store or env().data / 'weights'}/run-{run.pk}"


def checkpoints_folder(run: Run) -> Path:
    return env().data / "checkpoints" / f"run-{run.pk}"


def ranks_folder() -> Path:
    """Where machines find the runs that they are to take part in."""
    return env().data / "ranks"


def place_lock(queue: str) -> Path:
    """Lock of the train worker with this queue and of its trainer process. The queue has the host's name: the folder may be
    shared."""
    return env().data / "run" / f"{queue}.lock"


def ranks_lock(queue: str) -> Path:
    """Lock of the ranks that this train worker's trainer started on its machine."""
    return env().data / "run" / f"{queue}.ranks.lock"


def starting_folder(run: Run) -> Path:
    """Configuration, tokenizer and guessing head beside which the run's weights are served: those of the version that it
    starts from, whose stage may have scaled the context, or trained a head. Once its files were removed, the lineage's."""
    try:
        return resolve(run.policy_in.at(run.policy_in_version)).path
    except UserError:
        return real_path(run.policy_in.base_dir)


SERVED_TOKENS = 2048
"""Minimum context of a run's deployment: others than its episodes ask it, too, such as the writer of textual feedback."""


def served_weights(run: Run) -> DeploymentSpec:
    """What the inference server is asked for: the weights that the run publishes, each version as it comes."""
    stage = run.configuration.stage
    sampling = stage.sampling if isinstance(stage, RLConfig) else SamplingConfig()
    return DeploymentSpec(
        name=deployment_name(run),
        policy_dir=str(starting_folder(run)),
        store=weights_folder(run),
        follow=True,
        num_speculative_tokens=sampling.num_speculative_tokens,
        max_model_len=max(sampling.max_context_tokens, SERVED_TOKENS),
        kv_cache_mib=sampling.kv_cache_mib,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        experts=isinstance(stage, RLConfig) and sampling.enable_router_replay,
    )


def deployment_name(run: Run) -> str:
    """Inference deployment that follows the run's weights."""
    return f"run-{run.pk}"
