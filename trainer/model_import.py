"""What an import of a model is asked, and what it answers: the words between a page, an API, a worker and the trainer.

Imports without torch. `trainer.policy.importing` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

RendererName = Literal[
    "auto",
    "template",
    "toy",
    "qwen3",
    "qwen3.5",
    "qwen3.6",
    "qwen3.8",
    "kimi-k2",
    "kimi-k2.5",
    "deepseek-v3",
    "deepseek-r1",
    "deepseek-v4",
    "glm-4.5",
    "glm-5",
    "glm-5.1",
    "glm-5.3",
    "llama-3",
    "minimax-m2",
    "nemotron-3",
    "nemotron-3-ultra",
    "nemotron-3.5",
    "hy3",
    "laguna-xs.2",
    "laguna-m.1",
    "laguna-xs-2.1",
    "laguna-s-2.1",
]
RENDERERS: tuple[str, ...] = get_args(RendererName)
TEMPLATES = Path(__file__).parent / "policy" / "templates"
"""Chat templates that are shipped, by name."""


def shipped_templates() -> list[str]:
    return sorted(path.stem for path in TEMPLATES.glob("*.jinja"))


class ModelFacts(BaseModel):
    """What a policy is, what it needs, and what it lacks. Sizes are bytes."""

    model_config = ConfigDict(frozen=True)

    model_type: str
    parameters: int
    context: int | None = Field(description="Most positions of the model, in tokens")
    stored: str = Field(description="How its weights were stored, and what was made of them")
    attention: str = Field(description="grouped-query, multi-head latent (MLA) …")
    experts: int = Field(0, description="Routed experts of a layer; 0: a dense model")
    renderer: str = Field(description="What renders its conversations; empty: nothing can")
    prompt_tokens: int | None = Field(description="Tokens of an opening prompt with the tools of the full harness")
    serve_bytes: int = Field(description="Weights in bf16, without the KV cache")
    train_bytes: int = Field(description="Weights, gradients and AdamW state in float32, without activations")
    kv_bytes: int | None = Field(description="KV cache of a token in bf16, of all layers")
    lacks: list[str] = Field(default_factory=list, description="What episodes need and it does not have")
    problem: str = Field("", description="Why its chat template cannot drive episodes; empty: it can")


class Asked(BaseModel):
    """One import. `target` is the folder that is written where the source cannot be used as it is."""

    path: str
    target: str
    template: str = ""
    """A shipped template's name, or the text of one; empty: the model's own."""
    renderer: str = "auto"


class Answer(BaseModel):
    """Either `folder` and `facts`, or why not, with the field of the request that is to be changed."""

    folder: str = ""
    facts: ModelFacts | None = None
    refused: str = ""
    field: str = ""
