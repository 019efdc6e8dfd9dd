"""A policy from outside: what was converted and judged becomes a policy with version 0."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from composer_web.core.errors import UserError
from composer_web.env import env
from composer_web.policies.models import Policy
from composer_web.policies.services import describe_architecture, import_base
from trainer.model_import import Asked, ModelFacts


@dataclass(frozen=True, slots=True)
class Imported:
    """A policy folder that was prepared, and what was found of it."""

    folder: Path
    facts: ModelFacts


def register(imported: Imported, *, name: str, description: str = "", toy: bool = False) -> Policy:
    """A template that cannot drive episodes is kept in words with the policy, which can still be trained on text.

    Raises UserError."""
    facts = imported.facts
    if not facts.renderer:
        raise UserError("policy", f"{imported.folder}: {facts.problem}")
    return import_base(
        path=imported.folder, name=name, description=description, toy=toy, template_problem=facts.problem, facts=facts
    )


def import_folder(
    *,
    path: Path,
    name: str = "base",
    description: str = "",
    toy: bool = False,
    template: str = "",
    renderer: str = "auto",
) -> Policy:
    """Convert, judge and register what lies at `path`, in this process.

    Raises UserError: no weights, no tokenizer or no chat template, without which no stage runs."""
    if path.suffix not in (".gguf", ".safetensors") and not list(path.glob("*.gguf")):
        describe_architecture(path)  # first: the tokenizer's loader takes seconds
    from trainer.policy.importing.__main__ import carry_out

    target = env().data / "models" / name
    answer = carry_out(Asked(path=str(path), target=str(target), template=template, renderer=renderer))
    if answer.refused:
        raise UserError("policy" if answer.field == "path" else answer.field, answer.refused)
    assert answer.facts is not None, "an answer has facts or a refusal"
    return register(Imported(Path(answer.folder), answer.facts), name=name, description=description, toy=toy)
