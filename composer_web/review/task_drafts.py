"""Creates a task from a turn of a recorded session: a draft with the files at that time, and its publication.

The files come from the snapshot of the turn, or from its calls run again in a sandbox, as forks do. A published draft is
a task version like any other: nothing may use it before its controls hold.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from pydantic import ValidationError

from composer_web.accounts.models import User
from composer_web.accounts.services import audit
from composer_web.core.errors import Conflict, UserError
from composer_web.core.queue.outbox import enqueue
from composer_web.env import env
from composer_web.live.hints import hint
from composer_web.review.models import Draft
from composer_web.rollouts import selectors
from composer_web.rollouts.models import Rollout
from composer_web.rollouts.worker.forks import conditions_of
from composer_web.rollouts.worker.loop import snapshots_folder
from composer_web.tasks.models import Task, TaskVersion
from composer_web.tasks.services import request_controls, save_specs
from sandbox.backends.base import Patch, SandboxError
from sandbox.backends.choice import default_backend
from sandbox.backends.snapshots import SnapshotStore
from sandbox.errors import TaskError
from sandbox.harness.errors import HarnessFailure
from sandbox.harness.profile import get_profile
from sandbox.tasks.environments import EnvironmentStore
from sandbox.tasks.spec import BuiltEnvironment, InlineEnvironment, TaskSpec
from trainer.config import HarnessConfig
from trainer.rollouts import fork as forking
from trainer.types import Trajectory

SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


@transaction.atomic
def create_draft(
    *, rollout: Rollout, turn: int, slug: str, instruction: str, category: str = "debug", actor: User
) -> Draft:
    """A draft from the moment after the first `turn` turns of a rollout; a worker collects its files.

    Raises UserError, NotFound (no trajectory is recorded), ArtifactError.
    """
    trajectory = selectors.trajectory(rollout)
    if turn:
        try:
            forking.check_moment(len(trajectory.turns), turn)
        except forking.ForkImpossible as error:
            raise UserError("turn", f"rollout {rollout.pk}: {error}") from error
    if not SLUG.fullmatch(slug):
        raise UserError("slug", f"a name has up to 100 lower-case letters, digits, - and _, not {slug[:110]!r}")
    if Task.objects.filter(slug=slug).exists() or Draft.objects.filter(slug=slug).exists():
        raise UserError("slug", f"there is a task or draft {slug!r} already; choose another name")
    draft = Draft(
        slug=slug,
        rollout=rollout,
        turn=turn,
        state="collecting" if turn else "open",
        provenance=_provenance(rollout, trajectory, turn),
        created_by=actor,
    )
    _set_words(draft, instruction=instruction, category=category)
    draft.save()
    if turn:
        enqueue("review.collect_draft", {"draft_id": draft.pk}, queue="build", key=f"draft:{draft.pk}")
    audit(actor=actor, action="draft.create", target=f"draft:{draft.pk}", rollout=rollout.pk, turn=turn)
    hint("reviews")
    return draft


def _provenance(rollout: Rollout, trajectory: Trajectory, turn: int) -> dict[str, Any]:
    group = rollout.group
    return {
        "rollout": rollout.pk,
        "turn": turn,
        "task": group.task_version.task.slug,
        "version": group.task_version.number,
        "bundle_hash": trajectory.bundle_hash,
        "snapshot": trajectory.turns[turn - 1].snapshot if turn else "",
        "run": group.run_id,
        "evaluation": group.evaluation_id,
        "policy_versions": [rollout.oldest_version, rollout.newest_version],
        "tool_schema_hash": trajectory.tool_schema_hash,
        "verdict": rollout.verdict,
    }


def _set_words(draft: Draft, *, instruction: str, category: str) -> None:
    text = instruction.replace("\r\n", "\n").strip()
    if not 1 <= len(text) <= 20_000:
        raise UserError("instruction", f"an instruction has 1 to 20,000 characters, not {len(text)}")
    known = [name for name, _ in Draft._meta.get_field("category").choices or ()]
    if category not in known:
        raise UserError("category", f"{', '.join(map(str, known))}; found {category[:60]!r}")
    draft.instruction, draft.category = text, category


@transaction.atomic
def change(
    *,
    draft: Draft,
    instruction: str,
    category: str,
    verifier: Mapping[str, Any] | None = None,
    gold: Mapping[str, str] | None = None,
    actor: User,
) -> Draft:
    """Other words or other hidden tests for a draft that is not published. Raises UserError, Conflict."""
    row = _open(draft)
    _set_words(row, instruction=instruction, category=category)
    row.verifier = dict(verifier) if verifier is not None else row.verifier
    row.gold = dict(gold) if gold is not None else row.gold
    if row.state == "open":
        bundle(row)  # refuses what no bundle can be
    row.save()
    audit(actor=actor, action="draft.change", target=f"draft:{row.pk}")
    hint("reviews")
    return row


def _open(draft: Draft) -> Draft:
    row = Draft.objects.select_for_update(of=("self",)).get(pk=draft.pk)
    if row.state in ("published", "discarded"):
        raise Conflict(f"draft {row.slug} is {row.state}", "state")
    return row


@transaction.atomic
def discard(*, draft: Draft, actor: User) -> Draft:
    """Raises Conflict if the draft is published."""
    row = _open(draft)
    row.state = "discarded"
    row.save(update_fields=["state", "changed_at"])
    audit(actor=actor, action="draft.discard", target=f"draft:{row.pk}")
    hint("reviews")
    return row


@transaction.atomic
def publish(*, draft: Draft, actor: User) -> TaskVersion:
    """Publish the draft as a task of source `session`, and request its controls. Raises UserError, Conflict."""
    row = _open(draft)
    if row.state != "open":
        raise Conflict(f"the files of draft {row.slug} are not there: it is {row.state}. {row.cause}".strip(), "state")
    if row.not_carried:
        raise UserError("files", f"a bundle cannot hold what the session did: {'; '.join(row.not_carried)[:400]}")
    spec = bundle(row)
    if Task.objects.filter(slug=row.slug).exists():
        raise Conflict(f"there is a task {row.slug!r} by now; make the draft again under another name", "slug")
    (version,) = save_specs([spec])
    if version.author_id is None:
        version.author = row.created_by
        version.save(update_fields=["author"])
    row.state, row.version = "published", version
    row.save(update_fields=["state", "version", "changed_at"])
    request_controls([version.pk])
    audit(actor=actor, action="draft.publish", target=f"draft:{row.pk}", task=row.slug)
    hint("reviews", "tasks")
    return version


def bundle(draft: Draft) -> TaskSpec:
    """The draft as a task. Raises UserError naming the invalid part."""
    source = TaskVersion.objects.get(groups__rollouts=draft.rollout_id).bundle
    known = source.model_dump(mode="json")
    environment = known["environment"]
    place = "overrides" if isinstance(source.environment, BuiltEnvironment) else "files"
    files = {**environment[place], **draft.files}
    environment[place] = {path: text for path, text in files.items() if text is not None}
    known |= {
        "id": draft.slug,
        "source": "session",
        "category": draft.category,
        "instruction": draft.instruction,
        "verifier": draft.verifier or known["verifier"],
        "gold": draft.gold if draft.gold is not None else known["gold"],
    }
    try:
        return TaskSpec.model_validate(known)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(where.split(".")[0], f"{where}: {first['msg']}") from error


# --- files ------------------------------------------------------------------------------------------------------


def collect(draft_id: int) -> Draft:
    """Fill in the files of a waiting draft. Idempotent. A permanent failure is stored as the draft's cause."""
    draft = Draft.objects.select_related("rollout__group__task_version").get(pk=draft_id)
    if draft.state != "collecting":
        return draft
    trajectory = selectors.trajectory(draft.rollout)
    spec = draft.rollout.group.task_version.bundle
    harness = HarnessConfig.model_validate(conditions_of(draft.rollout.group)["harness"])
    try:
        patch, replayed = asyncio.run(_files_at(trajectory, draft.turn, spec, harness.profile))
    except (forking.ForkImpossible, TaskError) as error:
        return _finish(draft, state="failed", cause=str(error))
    except (SandboxError, HarnessFailure, OSError) as error:
        raise CollectFailed(f"the files of draft {draft.slug} could not be collected: {error}") from error
    files, lost = draft_files(patch, spec)
    return _finish(
        draft, state="open", files=files, not_carried=lost, provenance={**draft.provenance, "replayed": replayed}
    )


class CollectFailed(Exception):
    """An infrastructure failure; the collection is retried."""


async def _files_at(trajectory: Trajectory, turn: int, spec: TaskSpec, profile: str) -> tuple[Patch, int]:
    """The session's changes at that turn, and the number of its turns run again to obtain them."""
    backend, environments = default_backend(), EnvironmentStore(env().data / "environments")
    known = get_profile(profile)
    try:
        lease, replayed = await forking.moment(
            trajectory,
            turns=turn,
            task=spec,
            profile=known,
            backend=backend,
            environments=environments,
            store=SnapshotStore(snapshots_folder()),
        )
        with lease:
            place = environments.spec(spec.environment, known.machine)
            async with await backend.start(place, snapshot=lease.snapshot) as sandbox:
                return await sandbox.diff(), replayed
    finally:
        await backend.close()


def draft_files(patch: Patch, spec: TaskSpec) -> tuple[dict[str, str | None], list[str]]:
    """Changes that a bundle can contain (path → text, None: removed), and those that it cannot, with reasons."""
    files: dict[str, str | None] = {}
    lost = [f"{path}: {why}" for path, why in patch.skipped]
    for change_ in patch.changes:
        if change_.content is None:
            if isinstance(spec.environment, InlineEnvironment):
                files[change_.path] = None
            else:
                lost.append(f"{change_.path}: removed from a built environment, which a bundle cannot say")
            continue
        try:
            files[change_.path] = change_.content.decode()
        except UnicodeDecodeError:
            lost.append(f"{change_.path}: not text")
    return files, lost


def _finish(draft: Draft, **fields: Any) -> Draft:
    with transaction.atomic():
        row = Draft.objects.select_for_update().get(pk=draft.pk)
        if row.state != "collecting":
            return row
        for name, value in fields.items():
            setattr(row, name, value)
        row.save()
        hint("reviews")
    return row
