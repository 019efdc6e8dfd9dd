"""Carries out an import: a child process converts and checks, and this one registers the policy."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from django.db import transaction
from pydantic import ValidationError

from composer_web.accounts.access import Access, acting
from composer_web.accounts.models import DEFAULT_PROJECT
from composer_web.core.queue import leases
from composer_web.core.errors import UserError
from composer_web.env import REPOSITORY, env
from composer_web.policies.imports import orders
from composer_web.policies.importing import Imported, register
from composer_web.policies.models import PolicyImport
from trainer.model_import import Answer, Asked

log = logging.getLogger(__name__)

MAX_SECONDS = 6 * 3600.0
"""Most seconds of an import: a checkpoint of a terabyte is read, converted and written once."""


def carry_out(import_id: int) -> str:
    """Returns the outcome for the log. Idempotent."""
    order = orders.claim(import_id)
    if order is None:
        return "nothing to do"
    try:
        imported = run(order.path, order.name, template=order.template, renderer=order.renderer)
        with acting(Access(order.created_by_id or 0, "operator", order.project_id or DEFAULT_PROJECT)), transaction.atomic():
            leases.fence()
            policy = register(imported, name=order.name, description=order.description)
            orders.finish(order, policy)
    except UserError as error:
        _failed(order, error.message)
        return f"refused: {error.message}"
    return f"imported as {order.name}"


def _failed(order: PolicyImport, cause: str) -> None:
    with transaction.atomic():
        leases.fence()
        orders.fail(order, cause)


def run(path: str, name: str, *, template: str = "", renderer: str = "auto") -> Imported:
    """Import in a child process, whose memory ends with it. Raises UserError."""
    asked = {"path": path, "target": str(env().data / "models" / name), "template": template, "renderer": renderer}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "trainer.policy.importing"],
            input=Asked(**asked).model_dump_json(),
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            cwd=REPOSITORY,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError("path", f"it was not imported within {MAX_SECONDS / 3600:.0f} hours; import a smaller model") from error
    if done.returncode < 0:
        raise UserError(
            "path",
            f"the import was killed (signal {-done.returncode}), as a rule for lack of memory; import it on a machine with more",
        )
    try:
        answer = Answer.model_validate_json((done.stdout.strip().splitlines() or [""])[-1])
    except ValidationError as error:
        log.warning("the import of %s broke: %s", path, done.stderr[-4000:])
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]
        raise UserError("path", f"the import broke: {last}; the worker's log has the rest") from error
    if answer.refused:
        raise UserError(answer.field, answer.refused)
    assert answer.facts is not None, "an answer has facts or a refusal"
    return Imported(Path(answer.folder), answer.facts)
