"""A policy from outside: a folder whose tokenizer is read and whose chat template is judged before it is registered."""

from __future__ import annotations

from pathlib import Path

from composer_web.core.errors import UserError
from composer_web.policies.models import Policy
from composer_web.policies.services import describe_architecture, import_base


def import_folder(*, path: Path, name: str = "base", description: str = "", toy: bool = False) -> Policy:
    """As `import_base`. A template that cannot drive episodes is kept in words with the policy, which can still be trained
    on text. Raises UserError: no weights, no tokenizer or no chat template, without which no stage runs."""
    describe_architecture(path)  # first: the tokenizer's loader takes seconds
    return import_base(path=path, name=name, description=description, toy=toy, template_problem=_template_problem(path))


def _template_problem(folder: Path) -> str:
    """Raises UserError."""
    from trainer.policy import ChatRenderer, ChatTemplateError, PolicyUnreadable, load_tokenizer
    from trainer.policy.round_trip import problem_of

    try:
        return problem_of(ChatRenderer(load_tokenizer(folder)))
    except PolicyUnreadable as error:
        raise UserError("policy", str(error)) from error
    except ChatTemplateError as error:
        raise UserError("policy", f"{folder}: {error}") from error
